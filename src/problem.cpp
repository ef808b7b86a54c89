#include "src/problem.h"
