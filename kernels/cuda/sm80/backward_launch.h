// Bodies of backward's launches, for the files that instantiate them.
#pragma once
#include "kernels/cuda/grid.h"
#include "kernels/cuda/sm80/dims.h"
#include "kernels/cuda/sm80/key_gradients.h"
#include "kernels/cuda/sm80/launches.h"
#include "kernels/cuda/sm80/query_gradients.h"

namespace ringattn::cuda::sm80 {

template <class T>
void launch_query_gradients(const BackwardParams& params, cudaStream_t stream) {
  with_dims(params.head_dim, params.dim_v, [&](auto dims) {
    constexpr int kDim = decltype(dims)::kK, kDimV = decltype(dims)::kV;
    start("sm_80 query_gradients", query_gradients_kernel<T, kDim, kDimV>,
          params.walk.count * params.all_heads, QueryGradientTiles<kDim, kDimV>::kTotal / 4, params, stream);
  });
}

template <class T>
void launch_key_gradients(const BackwardParams& params, cudaStream_t stream) {
  with_dims(params.head_dim, params.dim_v, [&](auto dims) {
    constexpr int kDim = decltype(dims)::kK, kDimV = decltype(dims)::kV;
    const auto launch_one = [&](auto* kernel) {
      start("sm_80 key_gradients", kernel, params.walk.count * params.all_heads_kv,
            KeyGradientTiles<kDim, kDimV>::kTotal / 4, params, stream);
    };
    if constexpr (kDim + kDimV <= 320) {
      launch_one(key_gradients_kernel<T, kDim, kDimV, Makes::both>);
    } else {
      launch_one(key_gradients_kernel<T, kDim, kDimV, Makes::keys>);
      launch_one(key_gradients_kernel<T, kDim, kDimV, Makes::values>);
    }
  });
}

}  // namespace ringattn::cuda::sm80
