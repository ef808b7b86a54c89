// Chapter 2, backward (Dao, arXiv:2307.08691, algorithm 2), without atomics and so deterministic: one kernel
// with a group of queries to a block of threads makes dq, another with a group of keys makes dk and dv. Both
// form scores, dp and probabilities, so that there are 7 products of tiles where one kernel that adds to dq
// in memory needs 5. With an order on those additions (a counter for each group of queries, on which blocks
// wait in turn) 2/7 of the work would be saved, for fp32 traffic of rows x head_dim a block of keys and the
// waiting.
//
// In both, a warp has 16 of the block's 64 rows, and the columns take turns in two buffers: while one is
// worked on, the other is copied. This file: what both are made of.
#pragma once
#include "kernels/cuda/sm80/nonfinite.h"

namespace ringattn::cuda::sm80 {

inline constexpr int kGradientRows = 16 * kWarps;
// As many as leave room for two buffers in 99 KiB of shared memory, which every device has.
constexpr int gradient_columns(int dim) { return dim <= 96 ? 64 : dim <= 192 ? 32 : 16; }

// sums = rows columns^T of the 16 rows from row0 on.
template <class T, class RowTile, class ColumnTile, int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount][4], std::uint32_t rows, int row0,
                                         std::uint32_t columns) {
  clear(sums);
#pragma unroll
  for (int k = 0; k < RowTile::kChunks / 2; ++k) {
    Fragment a;
    RowTile::a(a, rows, row0, k);
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n) {
      Fragment b;
      ColumnTile::b_transposed(b, columns, n, k);
      ptx::mma_m16n8k16<typename Native<T>::type>(sums[2 * n], a, b[0], b[1]);
      ptx::mma_m16n8k16<typename Native<T>::type>(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// sums += weights columns. The weights are rounded to the operands' type.
template <class T, class ColumnTile, int kCount, int kWeights>
__device__ __forceinline__ void add_product(float (&sums)[kCount][4], const float (&weights)[kWeights][4],
                                            std::uint32_t columns) {
#pragma unroll
  for (int k = 0; k < kWeights / 2; ++k) {
    Fragment a;
    to_operand<T>(a, weights[2 * k], weights[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n) {
      Fragment b;
      ColumnTile::b(b, columns, n, k);
      ptx::mma_m16n8k16<typename Native<T>::type>(sums[2 * n], a, b[0], b[1]);
      ptx::mma_m16n8k16<typename Native<T>::type>(sums[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Of one query. high is -inf for a row that saw nothing anywhere: it is hidden, whatever its other numbers
// are, and its rows of q and dout are 0 (row_numbers_kernel sees to that).
struct QueryNumbers {
  float high, low, delta;
  __device__ __forceinline__ bool dead() const { return high == -INFINITY; }
};

__device__ __forceinline__ float probability(float product, const Scores& scores, const QueryNumbers& query) {
  return ptx::exp2_approx(fmaf(scores.slope, product * scores.factor, -query.high) - query.low);
}

// Adds the sums of a lane's row to a row in memory, which no other block touches.
template <int kCount>
__device__ __forceinline__ void add_to_row(const Rows& to, index_t head, index_t row, int half,
                                           const float (&sums)[kCount][4]) {
  float* const at = row_at<float>(to, head, row);
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    const int e = 8 * n + column_of_lane();
    if (e >= to.stride) break;  // a multiple of 4
    auto* const pair = reinterpret_cast<float2*>(at + e);
    const float2 x = ptx::load_global(pair);
    ptx::store_global(pair, make_float2(x.x + sums[n][2 * half], x.y + sums[n][2 * half + 1]));
  }
}

}  // namespace ringattn::cuda::sm80
