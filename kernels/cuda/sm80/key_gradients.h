// Rows are keys, columns queries, of one head after the other of those that read this KV head:
// dv += p^T dout, dk += ds^T q.
#pragma once
#include "kernels/cuda/sm80/backward.h"

namespace ringattn::cuda::sm80 {

// Which sums a launch makes: both, if the registers hold them.
enum class Makes : int { both, keys, values };

template <int kDim, int kDimV>
struct KeyGradientTiles {
  static constexpr int kColumns = gradient_columns(kDim > kDimV ? kDim : kDimV);
  using K = SharedTile<kGradientRows, kDim>;
  using V = SharedTile<kGradientRows, kDimV>;
  using Q = SharedTile<kColumns, kDim>;
  using Dout = SharedTile<kColumns, kDimV>;
  // Offsets in bytes; dout, the three numbers of each query, and flags for q and for dout within a buffer.
  static constexpr int kValues = K::kBytes, kBuffers = kValues + V::kBytes;
  static constexpr int kDout = Q::kBytes, kNumbers = kDout + Dout::kBytes;
  static constexpr int kFlags = kNumbers + 3 * 4 * kColumns, kBuffer = kFlags + 2 * 4 * kWarps;
  static constexpr int kTotal = kBuffers + 2 * kBuffer;
};

// The columns' numbers in shared memory: all high, all low, all delta.
template <int kColumns>
struct SharedNumbers {
  static __device__ __forceinline__ void load(std::uint32_t to, const RowNumbers& from, index_t first,
                                              int valid) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float* const numbers = (i == 0 ? from.high : i == 1 ? from.low : from.delta) + first;
      const int c = static_cast<int>(threadIdx.x);
      if (c < kColumns)
        ptx::cp_async<4>(to + static_cast<std::uint32_t>(4 * (i * kColumns + c)),
                         numbers + (c < valid ? c : 0), c < valid ? 4 : 0);
    }
  }
  // Of columns `column`, which is even, and the next.
  static __device__ __forceinline__ void at(QueryNumbers (&query)[2], std::uint32_t numbers, int column) {
    const auto pair = [&](int i) {
      return ptx::load_shared<float2>(numbers + static_cast<std::uint32_t>(4 * (i * kColumns + column)));
    };
    const float2 high = pair(0), low = pair(1), delta = pair(2);
    query[0] = {.high = high.x, .low = low.x, .delta = delta.x};
    query[1] = {.high = high.y, .low = low.y, .delta = delta.y};
  }
};

// p from scores (in s), and ds from p and dp, in place. visible(half, column).
template <int kCount, class Visible>
__device__ __forceinline__ void to_weights(float (&s)[kCount][4], float (&dp)[kCount][4],
                                           const Scores& scores, std::uint32_t numbers,
                                           const Visible& visible) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    QueryNumbers query[2];
    SharedNumbers<8 * kCount>::at(query, numbers, 8 * n + column_of_lane());
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const QueryNumbers& of = query[e % 2];
      const float p = probability(s[n][e], scores, of);
      const bool seen = !of.dead() && visible(e / 2, 8 * n + column_of_lane() + e % 2);
      s[n][e] = seen ? p : 0;
      dp[n][e] = seen ? p * (dp[n][e] - of.delta) : 0;
    }
  }
}

// A place of one of the heads.
template <int kColumns>
struct HeadPlace {
  Place<kColumns> place;
  int head = 0;

  __device__ __forceinline__ HeadPlace next(const BackwardParams& a, const Group& group) const {
    HeadPlace after{place.next(a.walk), head};
    if (!after.place.left() && head + 1 < a.heads_a_kv)
      after = {first_place<kColumns>(a.walk, group), head + 1};
    return after;
  }
};

template <class T, int kDim, int kDimV, Makes kMakes>
__global__ void __launch_bounds__(kThreads) key_gradients_kernel(BackwardParams a) {
  using Tiles = KeyGradientTiles<kDim, kDimV>;
  constexpr int kColumns = Tiles::kColumns;
  constexpr bool kMakesKeys = kMakes != Makes::values, kMakesValues = kMakes != Makes::keys;
  const std::uint32_t k = ptx::shared_address(ptx::dynamic_shared()), v = k + Tiles::kValues;
  std::uint32_t buffer = k + Tiles::kBuffers, other = buffer + Tiles::kBuffer;
  const auto count = static_cast<unsigned>(a.walk.count);
  const index_t head_kv = blockIdx.x / count;
  const Group group = ptx::load_global(a.walk.groups + blockIdx.x % count);
  const index_t left = a.k_rows - group.first_row;
  const int valid = static_cast<int>(left < kGradientRows ? left : kGradientRows);
  const int row0 = warp_index() * 16;
  const auto load = [&](std::uint32_t to, const HeadPlace<kColumns>& at) {
    const Step step = at.place.step(a.walk);
    const index_t head = head_kv * a.heads_a_kv + at.head;
    Tiles::Q::load(to, a.q, head, step.first, step.columns);
    Tiles::Dout::load(to + Tiles::kDout, a.dout, head, step.first, step.columns);
    SharedNumbers<kColumns>::load(to + Tiles::kNumbers, a.numbers, head * a.q.rows + step.first,
                                  step.columns);
    ptx::cp_async_commit();
  };

  HeadPlace<kColumns> at{first_place<kColumns>(a.walk, group)};
  Tiles::K::load(k, a.k, head_kv, group.first_row, valid);
  Tiles::V::load(v, a.v, head_kv, group.first_row, valid);
  load(buffer, at);
  float dk[kMakesKeys ? Tiles::Q::kChunks : 1][4], dv[kMakesValues ? Tiles::Dout::kChunks : 1][4];
  clear(dk);
  clear(dv);

  while (at.place.left()) {
    const Step step = at.place.step(a.walk);
    const std::uint32_t dout = buffer + Tiles::kDout, numbers = buffer + Tiles::kNumbers,
                        q_flags = buffer + Tiles::kFlags, dout_flags = q_flags + 4 * kWarps;
    const bool all = step.all_visible(0, valid, kColumns);
    const bool needed = all || step.any_visible(row0, row0 + 16);
    ptx::cp_async_wait<0>();
    if (!all) {
      if constexpr (kMakesKeys) set_flag(q_flags, own_nonfinite<T, typename Tiles::Q>(buffer));
      if constexpr (kMakesValues) set_flag(dout_flags, own_nonfinite<T, typename Tiles::Dout>(dout));
    }
    __syncthreads();  // the buffer is there, for all, and the other one has been read
    const HeadPlace<kColumns> next = at.next(a, group);
    if (next.place.left()) load(other, next);

    float s[kColumns / 8][4], dp[kColumns / 8][4];
    if (needed) {
      multiply<T, typename Tiles::K, typename Tiles::Q>(s, k, row0, buffer);
      if constexpr (kMakesKeys) {
        multiply<T, typename Tiles::V, typename Tiles::Dout>(dp, v, row0, dout);
      } else {
        clear(dp);
      }
    }
    if (all) {
      to_weights(s, dp, a.scores, numbers, [](int, int) { return true; });
    } else {
      const Step::Seen seen[2] = {step.seen_by(row0 + row_of_lane(0)), step.seen_by(row0 + row_of_lane(1))};
      const auto visible = [&](int half, int column) { return seen[half].has(column); };
      if (needed) to_weights(s, dp, a.scores, numbers, visible);
      const bool fix_q = kMakesKeys && any_flag(q_flags), fix_dout = kMakesValues && any_flag(dout_flags);
      if (fix_q || fix_dout) {
        if constexpr (kMakesKeys) {
          if (needed && fix_q) add_nonfinite<T, typename Tiles::Q, kColumns, false>(dk, buffer, visible);
        }
        if constexpr (kMakesValues) {
          if (needed && fix_dout) add_nonfinite<T, typename Tiles::Dout, kColumns, true>(dv, dout, visible);
        }
        __syncthreads();  // all have read them
        if constexpr (kMakesKeys) erase_nonfinite<T, typename Tiles::Q>(buffer);
        if constexpr (kMakesValues) erase_nonfinite<T, typename Tiles::Dout>(dout);
        __syncthreads();
      }
    }
    if (needed) {
      if constexpr (kMakesValues) add_product<T, typename Tiles::Dout>(dv, s, dout);
      if constexpr (kMakesKeys) add_product<T, typename Tiles::Q>(dk, dp, buffer);
    }
    at = next;
    const std::uint32_t done = buffer;
    buffer = other;
    other = done;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = row0 + row_of_lane(half);
    if (row >= valid) continue;
    if constexpr (kMakesKeys) add_to_row(a.dk, head_kv, group.first_row + row, half, dk);
    if constexpr (kMakesValues) add_to_row(a.dv, head_kv, group.first_row + row, half, dv);
  }
}

}  // namespace ringattn::cuda::sm80
