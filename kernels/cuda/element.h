// Elements in memory and in registers. Arithmetic is fp32; 16-bit elements are widened as they are read, and
// what is written is rounded once, to nearest even, by the same functions as on the CPU.
#pragma once
#include <type_traits>

#include "kernels/convert.h"
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda {

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(Bf16 x) { return f32_from_bf16(x.bits); }
__device__ __forceinline__ float widen(F16 x) { return f32_from_f16(x.bits); }

template <class T>
__device__ __forceinline__ T narrow(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return {bf16_from_f32(x)};
  } else {
    return {f16_from_f32(x)};
  }
}

// Four neighbours at a multiple of four elements of an aligned row.
template <class T>
__device__ __forceinline__ float4 load_four(const T* from) {
  if constexpr (std::is_same_v<T, float>) {
    return ptx::load_global(reinterpret_cast<const float4*>(from));
  } else {
    struct alignas(8) Four {
      T x[4];
    };
    const Four four = ptx::load_global(reinterpret_cast<const Four*>(from));
    return make_float4(widen(four.x[0]), widen(four.x[1]), widen(four.x[2]), widen(four.x[3]));
  }
}

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x % kWarpSize); }
__device__ __forceinline__ int warp_index() { return static_cast<int>(threadIdx.x / kWarpSize); }
// Of all warps of a launch.
__device__ __forceinline__ index_t global_warp() {
  return static_cast<index_t>(blockIdx.x) * kWarps + warp_index();
}

template <class T>
__device__ __forceinline__ T* row_at(const Rows& rows, index_t head, index_t row) {
  return static_cast<T*>(rows.data) + (head * rows.rows + row) * rows.stride;
}
template <class T>
__device__ __forceinline__ T* row_at(const Tensor& tensor, index_t batch, index_t head, index_t row) {
  return static_cast<T*>(tensor.data) + batch * tensor.batch_stride + row * tensor.row_stride +
         head * tensor.head_stride;
}

}  // namespace ringattn::cuda
