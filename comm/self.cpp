#include "comm/self.h"
