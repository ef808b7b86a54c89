#include "src/executor.h"
