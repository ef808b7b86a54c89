#include "comm/mpi_device_claim.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <cstdlib>
#include <string>

#include "src/error.h"

namespace ringattn {
namespace {

bool forbidden() {
  const char* const set = std::getenv("RINGATTN_MPI_DEVICE");
  const std::string value = set == nullptr ? "auto" : set;
  if (value != "auto" && value != "off") {
    throw UsageError("RINGATTN_MPI_DEVICE is '" + value + "', allowed are auto and off");
  }
  return value == "off";
}

}  // namespace

// MPIX_CUDA_AWARE_SUPPORT says that the header knows the question, whatever its value; MPICH knows another.
bool mpi_claims_device_memory() {
  if (forbidden()) return false;
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() != 0;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int supported = 0;
  return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#else
  return false;
#endif
}

}  // namespace ringattn
