#include "kernels/cpu/cpu.h"
