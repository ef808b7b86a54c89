#include "src/types.h"
