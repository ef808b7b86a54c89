#include "src/mask.h"
