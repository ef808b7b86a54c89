#include "comm/throttled.h"
