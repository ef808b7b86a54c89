// Launches of chapter 3, by element type; each is compiled in a file of its own.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/params.h"

namespace ringattn::cuda::sm90 {

// The number of queries to which attend's tiles are cut.
int attend_group_rows(index_t head_dim, index_t head_dim_v);

// T is __nv_bfloat16 or __half. Throws DeviceError where the runtime refuses.
template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream);

}  // namespace ringattn::cuda::sm90
