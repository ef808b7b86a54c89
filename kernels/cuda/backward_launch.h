// Bodies of backward's typed launches, for the files that instantiate them.
#pragma once
#include <algorithm>

#include "kernels/cuda/backward.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/typed_launches.h"

namespace ringattn::cuda {

template <class T>
void launch_query_gradients_of(const BackwardParams& params, cudaStream_t stream) {
  const int shared = backward_shared(params.head_dim, params.dim_v).total;
  with_tiles(params.head_dim, [&](auto tiles) {
    start("query_gradients", query_gradients_kernel<T, decltype(tiles)::value>,
          params.walk.count * params.all_heads, shared, params, stream);
  });
}

template <class T>
void launch_key_gradients_of(const BackwardParams& params, cudaStream_t stream) {
  const int shared = backward_shared(params.head_dim, params.dim_v).total;
  with_tiles(std::max(params.head_dim, params.dim_v), [&](auto tiles) {
    start("key_gradients", key_gradients_kernel<T, decltype(tiles)::value>,
          params.walk.count * params.all_heads_kv, shared, params, stream);
  });
}

}  // namespace ringattn::cuda
