#include "src/attention.h"
