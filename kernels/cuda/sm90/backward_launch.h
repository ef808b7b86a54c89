// Bodies of backward's launches, for the files that instantiate them.
#pragma once
#include "kernels/cuda/sm90/backward.h"
#include "kernels/cuda/sm90/dispatch.h"
#include "kernels/cuda/sm90/grid.h"
#include "kernels/cuda/sm90/launches.h"
#include "kernels/cuda/tensor_map.h"

namespace ringattn::cuda::sm90 {

// The two arrays of one side, as TMA loads them.
template <class T>
void set_maps(CUtensorMap (&maps)[2], const Rows& first, const Rows& second, index_t heads, int first_dim,
              int second_dim, int box_rows) {
  maps[0] = tensor_map(first, dtype_of(T{}), heads, first_dim, box_rows);
  maps[1] = tensor_map(second, dtype_of(T{}), heads, second_dim, box_rows);
}

template <class T>
void launch_query_gradients_of(const BackwardParams& params, cudaStream_t stream) {
  with_backward_shape(params.head_dim, params.dim_v, [&](auto shape) {
    using S = decltype(shape);
    BackwardArguments x{.rows = {}, .columns = {}, .a = params, .section = 0};
    set_maps<T>(x.rows, params.q, params.dout, params.all_heads, params.head_dim, params.dim_v, S::kRows);
    set_maps<T>(x.columns, params.k, params.v, params.all_heads_kv, params.head_dim, params.dim_v,
                S::kColumns);
    x.section = heads_a_section(params.k, params.v, params.heads_a_kv, params.all_heads);
    start("query_gradients", backward_kernel<T, Outer::queries, S>, params.walk.count * params.all_heads,
          S::kThreads, kBackwardSharedBytes<S>, x, stream);
  });
}

template <class T>
void launch_key_gradients_of(const BackwardParams& params, cudaStream_t stream) {
  with_backward_shape(params.head_dim, params.dim_v, [&](auto shape) {
    using S = decltype(shape);
    BackwardArguments x{.rows = {}, .columns = {}, .a = params, .section = 0};
    set_maps<T>(x.rows, params.k, params.v, params.all_heads_kv, params.head_dim, params.dim_v, S::kRows);
    set_maps<T>(x.columns, params.q, params.dout, params.all_heads, params.head_dim, params.dim_v,
                S::kColumns);
    // Each KV head reads the rows of several heads.
    x.section =
        std::max(index_t{1}, heads_a_section(params.q, params.dout, 1, params.all_heads) / params.heads_a_kv);
    start("key_gradients", backward_kernel<T, Outer::keys, S>, params.walk.count * params.all_heads_kv,
          S::kThreads, kBackwardSharedBytes<S>, x, stream);
  });
}

}  // namespace ringattn::cuda::sm90
