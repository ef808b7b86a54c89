// Body of backward's launch, for the files that instantiate it.
#pragma once
#include "kernels/cuda/sm90/backward.h"
#include "kernels/cuda/sm90/dispatch.h"
#include "kernels/cuda/sm90/grid.h"
#include "kernels/cuda/sm90/launches.h"
#include "kernels/cuda/tensor_map.h"

namespace ringattn::cuda::sm90 {

template <class T, class S>
void launch_gradients_shape(const BackwardParams& params, cudaStream_t stream) {
  const DType dtype = dtype_of(T{});
  const BackwardArguments arguments{
      .rows = {tensor_map(params.k, dtype, params.all_heads_kv, params.head_dim, S::kRows),
               tensor_map(params.v, dtype, params.all_heads_kv, params.dim_v, S::kRows)},
      .columns = {tensor_map(params.q, dtype, params.all_heads, params.head_dim, S::kColumns),
                  tensor_map(params.dout, dtype, params.all_heads, params.dim_v, S::kColumns)},
      .a = params,
      // Each KV head reads the rows of several heads.
      .section = std::max(index_t{1},
                          heads_a_section(params.q, params.dout, 1, params.all_heads) / params.heads_a_kv)};
  start("gradients", backward_kernel<T, S>, params.walk.count * params.all_heads_kv, S::kThreads,
        kBackwardSharedBytes<S>, arguments, stream);
}

template <class T>
void launch_gradients_of(const BackwardParams& params, cudaStream_t stream) {
  with_backward_shape(params.head_dim, params.dim_v,
                      [&](auto shape) { launch_gradients_shape<T, decltype(shape)>(params, stream); });
}

}  // namespace ringattn::cuda::sm90
