// What the launches of chapter 3 share.
#pragma once
#include <algorithm>
#include <string>

#include "kernels/cuda/grid.h"

namespace ringattn::cuda::sm90 {

inline DType dtype_of(__nv_bfloat16) { return DType::bf16; }
inline DType dtype_of(__half) { return DType::f16; }

// Of `heads` heads, those that are at work at once: so many that L2 holds the two arrays which come by,
// beside all else. `sharing` of them read one head of those; they stay together.
inline index_t heads_a_section(const Rows& first, const Rows& second, index_t sharing, index_t heads) {
  constexpr index_t kBytes = 32 << 20;  // of the 50 MB of an H100
  constexpr index_t kElement = 2;
  const index_t bytes = kElement * first.rows * (first.stride + second.stride);
  return std::min(heads, std::max(kBytes / bytes, index_t{1}) * sharing);
}

template <class Arguments>
void start(const char* name, void (*kernel)(Arguments), index_t blocks, int threads, int shared_bytes,
           const Arguments& arguments, cudaStream_t stream) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes),
             std::string(name) + ": " + std::to_string(shared_bytes) + " bytes of shared memory");
  launch(kernel, dim3(grid_size(name, blocks)), dim3(static_cast<unsigned>(threads)),
         static_cast<std::size_t>(shared_bytes), stream, arguments);
  check_cuda(cudaGetLastError(), name);
}

}  // namespace ringattn::cuda::sm90
