#include "comm/faulty.h"
