// make_cuda_kernel with another rule than the device's, so that small problems can be split, too.
#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "kernels/cuda/split.h"
#include "kernels/kernel.h"

namespace ringattn::cuda {

std::unique_ptr<Kernel> make_split_kernel(const KernelConfig& config, cudaStream_t stream,
                                          const SplitRule& rule);

}  // namespace ringattn::cuda
