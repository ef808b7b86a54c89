#include "src/plan.h"
