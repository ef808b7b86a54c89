#include "kernels/kernel.h"
