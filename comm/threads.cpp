#include "comm/threads.h"
