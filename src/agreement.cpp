#include "src/agreement.h"
