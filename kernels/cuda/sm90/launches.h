// Launches of chapter 3, by element type; each is compiled in a file of its own.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/params.h"

namespace ringattn::cuda::sm90 {

// T is __nv_bfloat16 or __half. Throws DeviceError where the runtime refuses.
template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream);
template <class T>
void launch_gradients_of(const BackwardParams& params, cudaStream_t stream);

}  // namespace ringattn::cuda::sm90
