// In place of the kernels in a build without CUDA.
#include "kernels/cuda/cuda.h"
#include "src/error.h"

namespace ringattn {

bool cuda_built() { return false; }

std::unique_ptr<Kernel> make_cuda_kernel(const KernelConfig&, void*) {
  throw DeviceError("this build has no CUDA kernels: it was made without nvcc, or with RINGATTN_CUDA=OFF");
}

}  // namespace ringattn
