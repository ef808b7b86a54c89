// Launches of one element type each, compiled in files of their own.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/params.h"

namespace ringattn::cuda::sm80 {

template <class T>
void launch_attend(const AttendParams& params, cudaStream_t stream);
template <class T>
void launch_query_gradients(const BackwardParams& params, cudaStream_t stream);
template <class T>
void launch_key_gradients(const BackwardParams& params, cudaStream_t stream);

}  // namespace ringattn::cuda::sm80
