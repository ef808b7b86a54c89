// Status codes of the CUDA runtime as exceptions.
#pragma once
#include <cuda_runtime.h>

#include <string>

namespace ringattn::cuda {

// Throws DeviceError with `what` and the runtime's own words unless the status is cudaSuccess. Kernels run
// later than they are launched, so the error may be that of earlier work.
void check_cuda(cudaError_t status, const std::string& what);

}  // namespace ringattn::cuda
