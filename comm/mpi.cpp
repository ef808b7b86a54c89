#include "comm/mpi.h"
