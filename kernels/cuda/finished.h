// What a row's state becomes in the end, for the kernels that write it: the same bits wherever it is done.
#pragma once
#include "kernels/cuda/element.h"

namespace ringattn::cuda {

// out = o / sum; a row that saw nothing, or nothing but scores of -inf, keeps its o, which is 0 (or NaN, from
// 0 times infinity).
template <class T>
__device__ __forceinline__ T finished(float o, float sum) {
  return narrow<T>(sum == 0 ? o : o / sum);
}

// lse of a row, where it is wanted. `head` counts the heads of all batches.
__device__ __forceinline__ void store_lse(const Outputs& to, index_t head, index_t row, float maximum,
                                          float sum, float slope) {
  if (!to.lse) return;
  constexpr double kLn2 = 0.693147180559945309417;
  const double lse =
      static_cast<double>(maximum) * static_cast<double>(slope) * kLn2 + log(static_cast<double>(sum));
  ptx::store_global(to.lse + head / to.heads * to.lse_stride[0] + head % to.heads * to.lse_stride[1] +
                        row * to.lse_stride[2],
                    sum == 0 ? -INFINITY : static_cast<float>(lse));
}

template <class T>
__device__ __forceinline__ T* out_row(const Outputs& to, index_t head, index_t row) {
  return row_at<T>(to.out, head / to.heads, head % to.heads, row);
}

}  // namespace ringattn::cuda
