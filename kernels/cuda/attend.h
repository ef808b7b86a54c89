// Forward: one block of keys and values is added to the state of the queries (Dao, arXiv:2307.08691,
// algorithm 1). A block of threads: 16 queries of one head; keys and values take turns in one buffer of
// shared memory, 32 at a time. Chapter 1: plain, fp32 multiply-adds.
#pragma once
#include "kernels/cuda/tile.h"

namespace ringattn::cuda {

struct AttendShared {  // offsets in floats
  int columns, weights, total;
};
__host__ __device__ constexpr AttendShared attend_shared(int head_dim, int dim_v) {
  const int columns = kGroupRows * shared_stride(head_dim);
  const int weights = columns + kColumns * shared_stride(head_dim > dim_v ? head_dim : dim_v);
  return {.columns = columns, .weights = weights, .total = weights + kThreads * kWarpRows};
}

// A warp's four rows and this lane's share of their state. `maximum` is that of a row; `sum` is over the
// lane's own columns and is added up over lanes when the span ends.
template <int kTiles>
struct WarpRows {
  float maximum[kWarpRows], sum[kWarpRows];
  float o[kWarpRows][kTiles];  // dimension 32 t + lane
};

__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
  for (int bits = 1; bits < kWarpSize; bits *= 2) x = fmaxf(x, ptx::shuffle_xor(x, bits));
  return x;
}
template <class Float>
__device__ __forceinline__ Float warp_sum(Float x) {
#pragma unroll
  for (int bits = 1; bits < kWarpSize; bits *= 2) x += ptx::shuffle_xor(x, bits);
  return x;
}

// What is subtracted from scores before exp2. A row that has seen nothing but -inf has a maximum of -inf, and
// -inf - -inf would be NaN; against 0 exp2 gives the 0 that is wanted.
__device__ __forceinline__ float base_of(float maximum) { return maximum == -INFINITY ? 0 : maximum; }

// Turns the scores of a step into weights, hidden ones into 0, and rescales what was summed before. NaN is
// not seen by fmaxf and goes its way through exp2 into the row's sum and output.
template <int kTiles>
__device__ __forceinline__ void soften(WarpRows<kTiles>& rows, float (&s)[kWarpRows], const Step& step,
                                       const Scores& scores, unsigned (&seen)[kWarpRows]) {
  const bool all = step.all_visible();
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const bool visible = all || step.visible(warp_index() * kWarpRows + r, lane_index());
    seen[r] = all ? kAllColumns : __ballot_sync(kAllColumns, visible);
    const float score = visible ? s[r] * scores.factor : -INFINITY;
    const float before = rows.maximum[r], now = fmaxf(before, warp_maximum(score));
    const float base = base_of(now);
    if (now != before) {
      const float scale = exp2f(scores.slope * (before - base));
      rows.maximum[r] = now;
      rows.sum[r] *= scale;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) rows.o[r][t] *= scale;
    }
    s[r] = visible ? exp2f(scores.slope * (score - base)) : 0;
    rows.sum[r] += s[r];
  }
}

// A span begins with the maxima so far and sums of 0.
template <int kTiles>
__device__ __forceinline__ void begin_span(const AttendParams& a, index_t state, int valid,
                                           WarpRows<kTiles>& rows) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const int row = warp_index() * kWarpRows + r;
    rows.maximum[r] = row < valid ? ptx::load_global(a.maximum + state + row) : -INFINITY;
    rows.sum[r] = 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) rows.o[r][t] = 0;
  }
}

// Adds it to the state. Only this warp touches these rows of it; lanes meet in the shuffles of warp_sum.
template <int kTiles>
__device__ __forceinline__ void end_span(const AttendParams& a, index_t state, int valid,
                                         const WarpRows<kTiles>& rows) {
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) {
    const index_t row = state + warp_index() * kWarpRows + r;
    const float sum = warp_sum(rows.sum[r]);  // before the branch: all lanes take part
    if (warp_index() * kWarpRows + r >= valid) continue;
    const float before = ptx::load_global(a.maximum + row);
    const float scale = exp2f(a.scores.slope * (before - base_of(rows.maximum[r])));
    float* const o = static_cast<float*>(a.o.data) + row * a.o.stride;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int e = t * kWarpSize + lane_index();
      if (e < a.dim_v) ptx::store_global(o + e, ptx::load_global(o + e) * scale + rows.o[r][t]);
    }
    __syncwarp();  // every lane has read `before`
    if (lane_index() != 0) continue;
    ptx::store_global(a.maximum + row, rows.maximum[r]);
    ptx::store_global(a.sum + row, ptx::load_global(a.sum + row) * scale + sum);
  }
  __syncwarp();
}

template <class T, int kTiles>
__global__ void __launch_bounds__(kThreads) attend_kernel(AttendParams a) {
  auto* const q = reinterpret_cast<float*>(ptx::dynamic_shared());
  const AttendShared at = attend_shared(a.head_dim, a.dim_v);
  float* const columns = q + at.columns;
  float* const weights = q + at.weights + warp_index() * kColumns * kWarpRows;
  const float* const warp_q = q + warp_index() * kWarpRows * shared_stride(a.head_dim);

  const index_t head = static_cast<index_t>(blockIdx.x) / a.walk.count, head_kv = head / a.heads_a_kv;
  const Group group = ptx::load_global(a.walk.groups + static_cast<index_t>(blockIdx.x) % a.walk.count);
  const index_t left = a.q_rows - group.first_row;
  const int valid = static_cast<int>(left < kGroupRows ? left : kGroupRows);
  const index_t state = head * a.o.rows + group.first_state;

  copy_rows<T>(a.q, head, group.first_row, valid, kGroupRows, a.head_dim, q);
  WarpRows<kTiles> rows;
  begin_span(a, state, valid, rows);
  int span = 0;
  const Piece* next = a.walk.pieces + group.first_piece;
  for (const Piece* const end = next + group.pieces; next != end; ++next) {
    const Piece piece = ptx::load_global(next);
    for (index_t first = piece.begin; first < piece.end; first += kColumns) {
      const Step step = step_of(piece, first);
      __syncthreads();  // the values before have been read
      copy_rows<T>(a.k, head_kv, first, step.columns, kColumns, a.head_dim, columns);
      __syncthreads();
      float s[kWarpRows];
      products(s, warp_q, columns, a.head_dim);
      unsigned seen[kWarpRows];
      soften(rows, s, step, a.scores, seen);
      share_weights(weights, s);
      __syncthreads();  // the keys have been read
      copy_rows<T>(a.v, head_kv, first, step.columns, kColumns, a.dim_v, columns);
      __syncthreads();
      add_columns(rows.o, weights, columns, a.dim_v, step.columns, seen);
      span += kColumns;
      if (span < kSpan) continue;
      end_span(a, state, valid, rows);
      begin_span(a, state, valid, rows);
      span = 0;
    }
  }
  if (span > 0) end_span(a, state, valid, rows);
}

}  // namespace ringattn::cuda
