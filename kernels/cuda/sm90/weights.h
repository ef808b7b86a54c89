// Chapter 3, backward: from products to the probabilities P and to dS = P (dP - delta), in place, as wgmma
// leaves its sums. Of what is hidden both are 0, whatever the products are.
#pragma once
#include "kernels/cuda/sm90/backward_shape.h"
#include "kernels/cuda/sm90/rows.h"

namespace ringattn::cuda::sm90 {

// Of one query; see RowNumbers. A row that saw nothing anywhere is hidden, whatever its other numbers are.
struct QueryNumbers {
  float high, low, delta;
  __device__ __forceinline__ bool dead() const { return high == -INFINITY; }
};

// The numbers of a tile's queries, which are columns: high, low, delta. A thread needs two neighbours at a
// time.
template <int kColumns>
using NumbersOfTile = float[3][kColumns];
// By a warp, whose lanes then wait for their copies. Queries beyond the head's get numbers, too; no key meets
// them.
template <int kColumns>
__device__ __forceinline__ void fetch_numbers(NumbersOfTile<kColumns>& to, const BackwardParams& a, int head,
                                              int first_query) {
  static_assert(kColumns == 64);
  const int column = static_cast<int>(threadIdx.x % 32) * 2, query = first_query + column;
  // Rows are a multiple of 8 (layout.h), so pairs are aligned and there as a whole, or not.
  const index_t at = query < a.q_rows ? head * a.q.rows + query : 0;
  const int bytes = query < a.q_rows ? 8 : 0;
  const float* const from[3] = {a.numbers.high, a.numbers.low, a.numbers.delta};
#pragma unroll
  for (int i = 0; i < 3; ++i) ptx::cp_async<8>(ptx::shared_address(&to[i][column]), from[i] + at, bytes);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
}
template <int kColumns>
__device__ __forceinline__ void load_numbers(const NumbersOfTile<kColumns>& numbers, int column,
                                             QueryNumbers (&pair)[2]) {
  float2 x[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) x[i] = ptx::load_shared(reinterpret_cast<const float2*>(&numbers[i][column]));
  pair[0] = {.high = x[0].x, .low = x[1].x, .delta = x[2].x};
  pair[1] = {.high = x[0].y, .low = x[1].y, .delta = x[2].y};
}

// s becomes P. kMasked: only pairs in `seen` of queries that are not dead are visible.
template <bool kMasked, int kSums, int kColumns>
__device__ __forceinline__ void to_probabilities(float (&s)[kSums], const NumbersOfTile<kColumns>& numbers,
                                                 const Span (&seen)[2], const Scores& scores) {
  const float unit = fmaxf(scores.factor * scores.slope, 0x1p-149f);  // 0 times infinity is NaN
  const Span own[2] = {from_own_column(seen[0]), from_own_column(seen[1])};
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const int column = 8 * j + 2 * quad_lane();
    QueryNumbers pair[2]{};
    load_numbers(numbers, column, pair);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QueryNumbers& query = pair[e];
        float& x = s[4 * j + 2 * h + e];
        x = ptx::exp2_approx(fmaf(x, unit, -query.high) - query.low);
        if (kMasked && (query.dead() || !own[h].has(8 * j + e))) x = 0;
      }
  }
}

// dp becomes dS, with the probabilities p.
template <bool kMasked, int kSums, int kColumns>
__device__ __forceinline__ void to_score_gradients(float (&dp)[kSums], const float (&p)[kSums],
                                                   const NumbersOfTile<kColumns>& numbers,
                                                   const Span (&seen)[2]) {
  const Span own[2] = {from_own_column(seen[0]), from_own_column(seen[1])};
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const int column = 8 * j + 2 * quad_lane();
    QueryNumbers pair[2]{};
    load_numbers(numbers, column, pair);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QueryNumbers& query = pair[e];
        float& x = dp[4 * j + 2 * h + e];
        x = p[4 * j + 2 * h + e] * (x - query.delta);
        if (kMasked && (query.dead() || !own[h].has(8 * j + e))) x = 0;
      }
  }
}

// Adds to fp32 rows in memory, which no other block of threads touches.
template <int kSums>
__device__ __forceinline__ void add_rows(const Rows& to, index_t head, index_t row, index_t rows, int dim,
                                         const float (&sums)[kSums]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= rows) continue;
    float* const at = static_cast<float*>(to.data) + (head * to.rows + row + 8 * h) * to.stride;
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = 8 * j + 2 * quad_lane() + e;
        if (column < dim)
          ptx::store_global(at + column, ptx::load_global(at + column) + sums[4 * j + 2 * h + e]);
      }
  }
}

}  // namespace ringattn::cuda::sm90
