// Backward (Dao et al., arXiv:2205.14135, algorithm 4), without atomics and so deterministic: one kernel with
// a group of queries to a block of threads makes dq, another with a group of keys makes dk and dv. Both form
// the probabilities anew. Chapter 1: plain, fp32 multiply-adds.
#pragma once
#include "kernels/cuda/tile.h"

namespace ringattn::cuda {

struct BackwardShared {  // offsets in floats: rows of head_dim, rows of dim_v, columns of either, weights
  int rows_v, columns, weights, total;
};
__host__ __device__ constexpr BackwardShared backward_shared(int head_dim, int dim_v) {
  const int rows_v = kGroupRows * shared_stride(head_dim);
  const int columns = rows_v + kGroupRows * shared_stride(dim_v);
  const int weights = columns + kColumns * shared_stride(head_dim > dim_v ? head_dim : dim_v);
  return {.rows_v = rows_v, .columns = columns, .weights = weights, .total = weights + kThreads * kWarpRows};
}

// Of one query.
struct QueryNumbers {
  float high = 0, low = 0, delta = 0;
  // A row that saw nothing anywhere. It is hidden, whatever its other numbers are.
  __device__ __forceinline__ bool dead() const { return high == -INFINITY; }
};

__device__ __forceinline__ QueryNumbers numbers_at(const RowNumbers& numbers, index_t row) {
  QueryNumbers result;
  result.high = ptx::load_global(numbers.high + row);
  result.low = ptx::load_global(numbers.low + row);
  result.delta = ptx::load_global(numbers.delta + row);
  return result;
}

__device__ __forceinline__ float probability(float product, const Scores& scores, const QueryNumbers& query) {
  return exp2f(fmaf(scores.slope, product * scores.factor, -query.high) - query.low);
}

template <int kTiles>
__device__ __forceinline__ void clear(float (&sums)[kWarpRows][kTiles]) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r)
#pragma unroll
    for (int t = 0; t < kTiles; ++t) sums[r][t] = 0;
}

// Adds the sums of a span to rows in memory, which no other block of threads touches, and begins anew.
template <int kTiles>
__device__ __forceinline__ void end_span(const Rows& to, index_t head, index_t first, int valid, int dim,
                                         float (&sums)[kWarpRows][kTiles]) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const int row = warp_index() * kWarpRows + r;
    if (row >= valid) break;
    float* const at = row_at<float>(to, head, first + row);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int e = t * kWarpSize + lane_index();
      if (e < dim) ptx::store_global(at + e, ptx::load_global(at + e) + sums[r][t]);
    }
  }
  clear(sums);
}

// Rows are queries, columns keys. kTiles: of head_dim.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) query_gradients_kernel(BackwardParams a) {
  auto* const q = reinterpret_cast<float*>(ptx::dynamic_shared());
  const BackwardShared at = backward_shared(a.head_dim, a.dim_v);
  float *const dout = q + at.rows_v, *const columns = q + at.columns;
  float* const weights = q + at.weights + warp_index() * kColumns * kWarpRows;
  const int row0 = warp_index() * kWarpRows;

  const index_t head = static_cast<index_t>(blockIdx.x) / a.walk.count, head_kv = head / a.heads_a_kv;
  const Group group = ptx::load_global(a.walk.groups + static_cast<index_t>(blockIdx.x) % a.walk.count);
  const index_t left = a.q_rows - group.first_row;
  const int valid = static_cast<int>(left < kGroupRows ? left : kGroupRows);

  copy_rows<T>(a.q, head, group.first_row, valid, kGroupRows, a.head_dim, q);
  copy_rows<T>(a.dout, head, group.first_row, valid, kGroupRows, a.dim_v, dout);
  QueryNumbers numbers[kWarpRows];
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r)
    if (row0 + r < valid) numbers[r] = numbers_at(a.numbers, head * a.q.rows + group.first_row + row0 + r);
  float dq[kWarpRows][kTiles];
  clear(dq);
  int span = 0;
  for (index_t p = group.first_piece; p < group.first_piece + group.pieces; ++p) {
    const Piece piece = ptx::load_global(a.walk.pieces + p);
    for (index_t first = piece.begin; first < piece.end; first += kColumns) {
      const Step step = step_of(piece, first);
      const bool all = step.all_visible();
      __syncthreads();  // the keys before have been read
      copy_rows<T>(a.v, head_kv, first, step.columns, kColumns, a.dim_v, columns);
      __syncthreads();
      float dp[kWarpRows], s[kWarpRows];
      products(dp, dout + row0 * shared_stride(a.dim_v), columns, a.dim_v);
      __syncthreads();  // the values have been read
      copy_rows<T>(a.k, head_kv, first, step.columns, kColumns, a.head_dim, columns);
      __syncthreads();
      products(s, q + row0 * shared_stride(a.head_dim), columns, a.head_dim);
      unsigned seen[kWarpRows];
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r) {
        const bool visible = !numbers[r].dead() && (all || step.visible(row0 + r, lane_index()));
        seen[r] = __ballot_sync(kAllColumns, visible);
        s[r] = visible ? probability(s[r], a.scores, numbers[r]) * (dp[r] - numbers[r].delta) : 0;
      }
      share_weights(weights, s);
      add_columns(dq, weights, columns, a.head_dim, step.columns, seen);
      span += kColumns;
      if (span < kSpan) continue;
      end_span(a.dq, head, group.first_row, valid, a.head_dim, dq);
      span = 0;
    }
  }
  end_span(a.dq, head, group.first_row, valid, a.head_dim, dq);
}

// Rows are keys, columns queries, of one head after the other of those that read this KV head. kTiles: of the
// larger of head_dim and dim_v.
template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) key_gradients_kernel(BackwardParams a) {
  auto* const k = reinterpret_cast<float*>(ptx::dynamic_shared());
  const BackwardShared at = backward_shared(a.head_dim, a.dim_v);
  float *const v = k + at.rows_v, *const columns = k + at.columns;
  float* const weights = k + at.weights + warp_index() * kColumns * kWarpRows;
  const int row0 = warp_index() * kWarpRows;

  const index_t head_kv = static_cast<index_t>(blockIdx.x) / a.walk.count;
  const Group group = ptx::load_global(a.walk.groups + static_cast<index_t>(blockIdx.x) % a.walk.count);
  const index_t left = a.k_rows - group.first_row;
  const int valid = static_cast<int>(left < kGroupRows ? left : kGroupRows);

  copy_rows<T>(a.k, head_kv, group.first_row, valid, kGroupRows, a.head_dim, k);
  copy_rows<T>(a.v, head_kv, group.first_row, valid, kGroupRows, a.dim_v, v);
  float dk[kWarpRows][kTiles], dv[kWarpRows][kTiles];
  clear(dk);
  clear(dv);
  int span = 0;
  for (index_t h = 0; h < a.heads_a_kv; ++h) {
    const index_t head = head_kv * a.heads_a_kv + h;
    for (index_t p = group.first_piece; p < group.first_piece + group.pieces; ++p) {
      const Piece piece = ptx::load_global(a.walk.pieces + p);
      for (index_t first = piece.begin; first < piece.end; first += kColumns) {
        const Step step = step_of(piece, first);
        const bool all = step.all_visible();
        __syncthreads();  // the queries before have been read
        copy_rows<T>(a.q, head, first, step.columns, kColumns, a.head_dim, columns);
        __syncthreads();
        float s[kWarpRows], dp[kWarpRows];
        products(s, k + row0 * shared_stride(a.head_dim), columns, a.head_dim);
        __syncthreads();
        copy_rows<T>(a.dout, head, first, step.columns, kColumns, a.dim_v, columns);
        __syncthreads();
        products(dp, v + row0 * shared_stride(a.dim_v), columns, a.dim_v);
        QueryNumbers query;
        if (lane_index() < step.columns)
          query = numbers_at(a.numbers, head * a.q.rows + first + lane_index());
        unsigned seen[kWarpRows];
#pragma unroll
        for (int r = 0; r < kWarpRows; ++r) {
          const bool visible = !query.dead() && (all || step.visible(row0 + r, lane_index()));
          seen[r] = __ballot_sync(kAllColumns, visible);
          s[r] = visible ? probability(s[r], a.scores, query) : 0;
          dp[r] = visible ? s[r] * (dp[r] - query.delta) : 0;
        }
        share_weights(weights, s);
        add_columns(dv, weights, columns, a.dim_v, step.columns, seen);
        __syncthreads();  // dout has been read
        copy_rows<T>(a.q, head, first, step.columns, kColumns, a.head_dim, columns);
        share_weights(weights, dp);
        __syncthreads();
        add_columns(dk, weights, columns, a.head_dim, step.columns, seen);
        span += kColumns;
        if (span < kSpan) continue;
        end_span(a.dk, head_kv, group.first_row, valid, a.head_dim, dk);
        end_span(a.dv, head_kv, group.first_row, valid, a.dim_v, dv);
        span = 0;
      }
    }
  }
  end_span(a.dk, head_kv, group.first_row, valid, a.head_dim, dk);
  end_span(a.dv, head_kv, group.first_row, valid, a.dim_v, dv);
}

}  // namespace ringattn::cuda
