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

// Of row `row` of an array of numbers; beyond the head's rows there are dead ones.
__device__ __forceinline__ QueryNumbers query_numbers(const BackwardParams& a, index_t head, index_t row) {
  if (row >= a.q_rows) return {.high = -INFINITY, .low = 0, .delta = 0};
  const index_t at = head * a.q.rows + row;
  return {.high = ptx::load_global(a.numbers.high + at),
          .low = ptx::load_global(a.numbers.low + at),
          .delta = ptx::load_global(a.numbers.delta + at)};
}

// Queries are rows: this thread has two.
struct NumbersOfRows {
  QueryNumbers of[2];
  __device__ __forceinline__ void load(int, QueryNumbers (&)[2]) const {}
  __device__ __forceinline__ const QueryNumbers& at(int h, int, const QueryNumbers (&)[2]) const {
    return of[h];
  }
};
// Queries are columns: their numbers lie in shared memory, and a thread needs two neighbours at a time.
template <int kColumns>
struct NumbersOfColumns {
  const float (&of)[3][kColumns];
  __device__ __forceinline__ void load(int column, QueryNumbers (&pair)[2]) const {
    float2 x[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) x[i] = ptx::load_shared(reinterpret_cast<const float2*>(&of[i][column]));
    pair[0] = {.high = x[0].x, .low = x[1].x, .delta = x[2].x};
    pair[1] = {.high = x[0].y, .low = x[1].y, .delta = x[2].y};
  }
  __device__ __forceinline__ const QueryNumbers& at(int, int e, const QueryNumbers (&pair)[2]) const {
    return pair[e];
  }
};

// s becomes P. kMasked: only pairs in `seen` of queries that are not dead are visible.
template <bool kMasked, int kSums, class Numbers>
__device__ __forceinline__ void to_probabilities(float (&s)[kSums], const Numbers& numbers,
                                                 const Span (&seen)[2], const Scores& scores) {
  const float unit = fmaxf(scores.factor * scores.slope, 0x1p-149f);  // 0 times infinity is NaN
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const int column = 8 * j + 2 * quad_lane();
    QueryNumbers pair[2]{};
    numbers.load(column, pair);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QueryNumbers& query = numbers.at(h, e, pair);
        float& x = s[4 * j + 2 * h + e];
        x = ptx::exp2_approx(fmaf(x, unit, -query.high) - query.low);
        if (kMasked && (query.dead() || !seen[h].has(column + e))) x = 0;
      }
  }
}

// dp becomes dS, with the probabilities p.
template <bool kMasked, int kSums, class Numbers>
__device__ __forceinline__ void to_score_gradients(float (&dp)[kSums], const float (&p)[kSums],
                                                   const Numbers& numbers, const Span (&seen)[2]) {
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    const int column = 8 * j + 2 * quad_lane();
    QueryNumbers pair[2]{};
    numbers.load(column, pair);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const QueryNumbers& query = numbers.at(h, e, pair);
        float& x = dp[4 * j + 2 * h + e];
        x = p[4 * j + 2 * h + e] * (x - query.delta);
        if (kMasked && (query.dead() || !seen[h].has(column + e))) x = 0;
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
