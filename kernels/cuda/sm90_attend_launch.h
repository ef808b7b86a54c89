// Body of launch_attend_of, for the files that instantiate it.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/cuda/grid.h"
#include "kernels/cuda/sm90_attend.h"
#include "kernels/cuda/sm90_dispatch.h"
#include "kernels/cuda/sm90_launches.h"
#include "kernels/cuda/tensor_map.h"

namespace ringattn::cuda::sm90 {

inline DType dtype_of(__nv_bfloat16) { return DType::bf16; }
inline DType dtype_of(__half) { return DType::f16; }

// Heads whose keys and values L2 holds at once beside all else; at least those that share one KV head.
inline index_t heads_a_section(const AttendParams& params) {
  constexpr index_t kBytes = 32 << 20;  // of the 50 MB of an H100
  const index_t head = 2 * params.k.rows * (params.k.stride + params.v.stride);
  return std::min(params.all_heads, std::max(kBytes / head, index_t{1}) * params.heads_a_kv);
}

template <class T, class S>
void launch_attend_shape(const AttendParams& params, cudaStream_t stream) {
  const DType dtype = dtype_of(T{});
  const index_t all_heads_kv = params.all_heads / params.heads_a_kv;
  const AttendArguments arguments{
      .q = tensor_map(params.q, dtype, params.all_heads, params.head_dim, S::kRowsQ),
      .k = tensor_map(params.k, dtype, all_heads_kv, params.head_dim, S::kKeys),
      .v = tensor_map(params.v, dtype, all_heads_kv, params.dim_v, S::kKeys),
      .a = params,
      .section = heads_a_section(params)};
  const auto kernel = attend_kernel<T, S>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<S>),
             "attend: " + std::to_string(kSharedBytes<S>) + " bytes of shared memory");
  launch(kernel, dim3(grid_size("attend", params.walk.count * params.all_heads)), dim3(S::kThreads),
         static_cast<std::size_t>(kSharedBytes<S>), stream, arguments);
  check_cuda(cudaGetLastError(), "attend");
}

template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream) {
  with_shape(params.head_dim, params.dim_v,
             [&](auto shape) { launch_attend_shape<T, decltype(shape)>(params, stream); });
}

}  // namespace ringattn::cuda::sm90
