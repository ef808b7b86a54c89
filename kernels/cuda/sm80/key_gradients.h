// Rows are keys, columns queries, of one head after the other of those that read this KV head:
// dv += p^T dout, dk += ds^T q.
#pragma once
#include "kernels/cuda/sm80/query_numbers.h"

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

// p and ds of a step, and in dk and dv what its queries hold that is not finite. All warps take part, those
// that see nothing of the step as well.
template <class T, class Tiles, Makes kMakes, int kKeySums, int kValueSums>
__device__ __forceinline__ void form_weights(float (&s)[Tiles::kColumns / 8][4],
                                             float (&dp)[Tiles::kColumns / 8][4], const BackwardParams& a,
                                             const Step& step, std::uint32_t k, std::uint32_t buffer,
                                             int row0, bool all, bool needed, float (&dk)[kKeySums][4],
                                             float (&dv)[kValueSums][4]) {
  const std::uint32_t dout = buffer + Tiles::kDout, numbers = buffer + Tiles::kNumbers;
  if (kMakes == Makes::values) clear(dp);
  if (needed) {
    multiply<T, typename Tiles::K, typename Tiles::Q>(s, k, row0, buffer);
    if constexpr (kMakes != Makes::values)
      multiply<T, typename Tiles::V, typename Tiles::Dout>(dp, k + Tiles::kValues, row0, dout);
  }
  if (all) {
    to_weights(s, dp, a.scores, numbers, [](int, int) { return true; });
    return;
  }
  const Step::Seen seen[2] = {step.seen_by(row0 + row_of_lane(0)), step.seen_by(row0 + row_of_lane(1))};
  const auto visible = [&](int half, int column) { return seen[half].has(column); };
  if (needed) to_weights(s, dp, a.scores, numbers, visible);
  const bool fix_q = kMakes != Makes::values && any_flag(buffer + Tiles::kFlags);
  const bool fix_dout = kMakes != Makes::keys && any_flag(buffer + Tiles::kFlags + 4 * kWarps);
  if (!fix_q && !fix_dout) return;
  if constexpr (kMakes != Makes::values) {
    if (needed && fix_q) add_nonfinite_factors<T, typename Tiles::Q, Tiles::kColumns>(dk, buffer, visible);
  }
  if constexpr (kMakes != Makes::keys) {
    if (needed && fix_dout)
      add_nonfinite<T, typename Tiles::Dout, Tiles::kColumns>(dv, dout, weighted_pairs<T>(s, visible));
  }
  __syncthreads();  // all have read them
  if constexpr (kMakes != Makes::values) erase_nonfinite<T, typename Tiles::Q>(buffer);
  if constexpr (kMakes != Makes::keys) erase_nonfinite<T, typename Tiles::Dout>(dout);
  __syncthreads();
}

// Whether a tile holds something that is not finite, said to all warps.
template <class T, class Tiles, Makes kMakes>
__device__ __forceinline__ void set_column_flags(std::uint32_t buffer) {
  if constexpr (kMakes != Makes::values)
    set_flag(buffer + Tiles::kFlags, own_nonfinite<T, typename Tiles::Q>(buffer));
  if constexpr (kMakes != Makes::keys)
    set_flag(buffer + Tiles::kFlags + 4 * kWarps,
             own_nonfinite<T, typename Tiles::Dout>(buffer + Tiles::kDout));
}

template <class T, int kDim, int kDimV, Makes kMakes>
__global__ void __launch_bounds__(kThreads) key_gradients_kernel(BackwardParams a) {
  using Tiles = KeyGradientTiles<kDim, kDimV>;
  constexpr int kColumns = Tiles::kColumns;
  constexpr bool kMakesKeys = kMakes != Makes::values, kMakesValues = kMakes != Makes::keys;
  const std::uint32_t k = ptx::shared_address(ptx::dynamic_shared());
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
  Tiles::V::load(k + Tiles::kValues, a.v, head_kv, group.first_row, valid);
  load(buffer, at);
  float dk[kMakesKeys ? Tiles::Q::kChunks : 1][4], dv[kMakesValues ? Tiles::Dout::kChunks : 1][4];
  clear(dk);
  clear(dv);

  while (at.place.left()) {
    const Step step = at.place.step(a.walk);
    const bool all = step.all_visible(0, valid, kColumns);
    const bool needed = all || step.any_visible(row0, row0 + 16);
    ptx::cp_async_wait<0>();
    if (!all) set_column_flags<T, Tiles, kMakes>(buffer);
    __syncthreads();  // the buffer is there, for all, and the other one has been read
    const HeadPlace<kColumns> next = at.next(a, group);
    if (next.place.left()) load(other, next);

    float p[kColumns / 8][4], ds[kColumns / 8][4];
    form_weights<T, Tiles, kMakes>(p, ds, a, step, k, buffer, row0, all, needed, dk, dv);
    if (needed) {
      if constexpr (kMakesValues) add_product<T, typename Tiles::Dout>(dv, p, buffer + Tiles::kDout);
      if constexpr (kMakesKeys) add_product<T, typename Tiles::Q>(dk, ds, buffer);
    }
    at = next;
    exchange(buffer, other);
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
