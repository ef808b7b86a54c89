// Body of launch_attend_of, for the files that instantiate it.
#pragma once
#include "kernels/cuda/sm90/attend.h"
#include "kernels/cuda/sm90/dispatch.h"
#include "kernels/cuda/sm90/grid.h"
#include "kernels/cuda/sm90/launches.h"
#include "kernels/cuda/tensor_map.h"

namespace ringattn::cuda::sm90 {

template <class T, class S>
void launch_attend_shape(const AttendParams& params, cudaStream_t stream) {
  const DType dtype = dtype_of(T{});
  const index_t all_heads_kv = params.all_heads / params.heads_a_kv, packs = all_packs(params);
  const AttendArguments arguments{.q = tensor_map(params.q, dtype, params.all_heads, params.head_dim,
                                                  params.group_rows, params.group_heads),
                                  .k = tensor_map(params.k, dtype, all_heads_kv, params.head_dim, S::kKeys),
                                  .v = tensor_map(params.v, dtype, all_heads_kv, params.dim_v, S::kKeys),
                                  .a = params,
                                  .packs = packs,
                                  .section = heads_a_section(params.k, params.v, params.packs_a_kv, packs)};
  start("attend", attend_kernel<T, S>, params.walk.count * packs, S::kThreads, kSharedBytes<S>, arguments,
        stream);
}

template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream) {
  with_shape(params.head_dim, params.dim_v,
             [&](auto shape) { launch_attend_shape<T, decltype(shape)>(params, stream); });
}

}  // namespace ringattn::cuda::sm90
