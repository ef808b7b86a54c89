// Launches of the kernels around the arithmetic, which all chapters share. What is known at run time (dtype)
// becomes compile-time here. All throw DeviceError naming the kernel, where the runtime refuses.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/params.h"

namespace ringattn::cuda {

// DType: of the tensor, and for loading of the array as well.
void launch_load(DType dtype, const LoadParams& params, cudaStream_t stream);
void launch_store(DType dtype, const StoreParams& params, cudaStream_t stream);
void launch_finish(DType dtype, const FinishParams& params, cudaStream_t stream);
void launch_row_numbers(DType dtype, const RowNumbersParams& params, cudaStream_t stream);
void launch_merge(const MergeParams& params, cudaStream_t stream);
void launch_add(const AddParams& params, cudaStream_t stream);
void launch_reset(const ResetParams& params, cudaStream_t stream);

}  // namespace ringattn::cuda
