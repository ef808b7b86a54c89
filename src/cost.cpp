#include "src/cost.h"
