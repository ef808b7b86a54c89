// Launches of one element type each, compiled in files of their own.
#pragma once
#include "kernels/cuda/launches.h"

namespace ringattn::cuda {

template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream);
template <class T>
void launch_query_gradients_of(const BackwardParams& params, cudaStream_t stream);
template <class T>
void launch_key_gradients_of(const BackwardParams& params, cudaStream_t stream);

}  // namespace ringattn::cuda
