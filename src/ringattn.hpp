// Everything a C++ caller needs but the MPI communicator, which is in "comm/mpi.h".
#pragma once
#include "comm/self.h"
#include "comm/threads.h"
#include "comm/throttled.h"
#include "src/attention.h"
#include "src/cost.h"
#include "src/error.h"
