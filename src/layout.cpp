#include "src/layout.h"
