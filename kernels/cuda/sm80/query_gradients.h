// Rows are queries of one head, columns keys: dq += ds k.
#pragma once
#include "kernels/cuda/sm80/backward.h"

namespace ringattn::cuda::sm80 {

template <int kDim, int kDimV>
struct QueryGradientTiles {
  static constexpr int kColumns = gradient_columns(kDim > kDimV ? kDim : kDimV);
  using Q = SharedTile<kGradientRows, kDim>;
  using Dout = SharedTile<kGradientRows, kDimV>;
  using K = SharedTile<kColumns, kDim>;
  using V = SharedTile<kColumns, kDimV>;
  // Offsets in bytes; V and flags within a buffer.
  static constexpr int kDout = Q::kBytes, kBuffers = kDout + Dout::kBytes;
  static constexpr int kValues = K::kBytes, kFlags = kValues + V::kBytes, kBuffer = kFlags + 4 * kWarps;
  static constexpr int kTotal = kBuffers + 2 * kBuffer;
};

// ds from scores (in s) and dp. visible(half, column).
template <int kCount, class Visible>
__device__ __forceinline__ void to_score_gradients(float (&s)[kCount][4], const float (&dp)[kCount][4],
                                                   const Scores& scores, const QueryNumbers (&query)[2],
                                                   const Visible& visible) {
#pragma unroll
  for (int n = 0; n < kCount; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const QueryNumbers& of = query[e / 2];
      const float ds = probability(s[n][e], scores, of) * (dp[n][e] - of.delta);
      s[n][e] = visible(e / 2, 8 * n + column_of_lane() + e % 2) ? ds : 0;
    }
}

// Of row `row` of a group; a row that does not exist is dead.
__device__ __forceinline__ QueryNumbers numbers_at(const BackwardParams& a, index_t head, index_t first,
                                                   int row, int valid) {
  if (row >= valid) return {.high = -INFINITY, .low = 0, .delta = 0};
  const index_t at = head * a.q.rows + first + row;
  return {.high = ptx::load_global(a.numbers.high + at),
          .low = ptx::load_global(a.numbers.low + at),
          .delta = ptx::load_global(a.numbers.delta + at)};
}

// ds of a step, and in dq what its keys hold that is not finite. All warps take part, those that see nothing
// of the step as well.
template <class T, class Tiles>
__device__ __forceinline__ void form_score_gradients(float (&s)[Tiles::kColumns / 8][4],
                                                     const BackwardParams& a, const Step& step,
                                                     const QueryNumbers (&query)[2], std::uint32_t q,
                                                     std::uint32_t buffer, int row0, bool all, bool needed,
                                                     float (&dq)[Tiles::K::kChunks][4]) {
  float dp[Tiles::kColumns / 8][4];
  if (needed) {
    multiply<T, typename Tiles::Q, typename Tiles::K>(s, q, row0, buffer);
    multiply<T, typename Tiles::Dout, typename Tiles::V>(dp, q + Tiles::kDout, row0, buffer + Tiles::kValues);
  }
  if (all) {
    to_score_gradients(s, dp, a.scores, query, [&](int half, int) { return !query[half].dead(); });
    return;
  }
  const Step::Seen seen[2] = {step.seen_by(row0 + row_of_lane(0)), step.seen_by(row0 + row_of_lane(1))};
  const auto visible = [&](int half, int column) { return !query[half].dead() && seen[half].has(column); };
  if (needed) to_score_gradients(s, dp, a.scores, query, visible);
  if (!any_flag(buffer + Tiles::kFlags)) return;
  if (needed) add_nonfinite_factors<T, typename Tiles::K, Tiles::kColumns>(dq, buffer, visible);
  __syncthreads();  // all have read them
  erase_nonfinite<T, typename Tiles::K>(buffer);
  __syncthreads();
}

template <class T, int kDim, int kDimV>
__global__ void __launch_bounds__(kThreads) query_gradients_kernel(BackwardParams a) {
  using Tiles = QueryGradientTiles<kDim, kDimV>;
  constexpr int kColumns = Tiles::kColumns;
  const std::uint32_t q = ptx::shared_address(ptx::dynamic_shared()), dout = q + Tiles::kDout;
  std::uint32_t buffer = q + Tiles::kBuffers, other = buffer + Tiles::kBuffer;
  const auto count = static_cast<unsigned>(a.walk.count);
  const index_t head = blockIdx.x / count, head_kv = head / a.heads_a_kv;
  const Group group = ptx::load_global(a.walk.groups + blockIdx.x % count);
  const index_t left = a.q_rows - group.first_row;
  const int valid = static_cast<int>(left < kGradientRows ? left : kGradientRows);
  const int row0 = warp_index() * 16;
  const auto load = [&](std::uint32_t to, const Step& step) {
    Tiles::K::load(to, a.k, head_kv, step.first, step.columns);
    Tiles::V::load(to + Tiles::kValues, a.v, head_kv, step.first, step.columns);
    ptx::cp_async_commit();
  };

  auto place = first_place<kColumns>(a.walk, group);
  Tiles::Q::load(q, a.q, head, group.first_row, valid);
  Tiles::Dout::load(dout, a.dout, head, group.first_row, valid);
  load(buffer, place.step(a.walk));
  QueryNumbers query[2];
#pragma unroll
  for (int half = 0; half < 2; ++half)
    query[half] = numbers_at(a, head, group.first_row, row0 + row_of_lane(half), valid);
  float dq[Tiles::K::kChunks][4];
  clear(dq);

  while (place.left()) {
    const Step step = place.step(a.walk);
    const bool all = step.all_visible(0, valid, kColumns);
    const bool needed = all || step.any_visible(row0, row0 + 16);
    ptx::cp_async_wait<0>();
    if (!all) set_flag(buffer + Tiles::kFlags, own_nonfinite<T, typename Tiles::K>(buffer));
    __syncthreads();  // the buffer is there, for all, and the other one has been read
    const auto next = place.next(a.walk);
    if (next.left()) load(other, next.step(a.walk));

    float ds[kColumns / 8][4];
    form_score_gradients<T, Tiles>(ds, a, step, query, q, buffer, row0, all, needed, dq);
    if (needed) add_product<T, typename Tiles::K>(dq, ds, buffer);
    place = next;
    exchange(buffer, other);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + row_of_lane(half);
    // A dead row has the 0 that is there already, even if 0 was multiplied by what is not finite.
    if (row < valid && !query[half].dead()) add_to_row(a.dq, head, group.first_row + row, half, dq);
  }
}

}  // namespace ringattn::cuda::sm80
