#include "src/rope.h"
