// Infinity and NaN in rows that are hidden from some rows of a tile. The tensor cores multiply what is hidden
// by 0, and 0 times NaN is NaN. So where something is masked, the tile that is summed over is searched, and
// if it holds such an element, which is rare,
//   1. every sum that sees it gets what its product is by IEEE arithmetic, weight times infinity: infinity,
//      or NaN where the weight is 0, underflow included; found by products of pairs and places
//      (add_nonfinite),
//   2. it is replaced by 0 (erase_nonfinite), and the products go on as always.
// A sum that does not see it has the same operands, and so the same bits, as if it were any finite number.
#pragma once
#include "kernels/cuda/sm80/step.h"
#include "kernels/cuda/sm80/tile.h"

namespace ringattn::cuda::sm80 {

// Which of the two elements in a register are what: a 1 of type T in their places.
enum class Kind : int { nan, plus_infinity, minus_infinity, nonfinite };

template <class T>
__device__ __forceinline__ bool is(Kind kind, std::uint32_t bits) {
  constexpr std::uint32_t kInfinity = Native<T>::kInfinity;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  switch (kind) {
    case Kind::nan:
      return magnitude > kInfinity;
    case Kind::plus_infinity:
      return bits == kInfinity;
    case Kind::minus_infinity:
      return bits == (kInfinity | 0x8000u);
    default:
      return magnitude >= kInfinity;
  }
}
template <class T>
__device__ __forceinline__ std::uint32_t places(Kind kind, std::uint32_t pair) {
  return (is<T>(kind, pair & 0xFFFFu) ? Native<T>::kOne : 0u) |
         (is<T>(kind, pair >> 16) ? Native<T>::kOne << 16 : 0u);
}

// Whether this thread's own chunks of a tile hold one. It has copied them itself, so no barrier is needed.
template <class T, class Tile>
__device__ __forceinline__ bool own_nonfinite(std::uint32_t tile) {
  bool found = false;
  Tile::for_own_chunks([&](int, int, std::uint32_t at) {
    const uint4 x = ptx::load_shared<uint4>(tile + at);
    for (const std::uint32_t pair : {x.x, x.y, x.z, x.w}) found |= places<T>(Kind::nonfinite, pair) != 0;
  });
  return found;
}

// A flag a warp in shared memory: set before a barrier, and read after it by all.
__device__ __forceinline__ void set_flag(std::uint32_t flags, bool found) {
  const unsigned any = __ballot_sync(~0u, found);
  if (lane_index() == 0)
    ptx::store_shared<int>(flags + static_cast<std::uint32_t>(warp_index()) * 4, any != 0);
}
__device__ __forceinline__ bool any_flag(std::uint32_t flags) {
  const int4 x = ptx::load_shared<int4>(flags);
  static_assert(kWarps == 4);
  return (x.x | x.y | x.z | x.w) != 0;
}

// Replaces them by 0 in this thread's chunks. Barriers before and after are the caller's.
template <class T, class Tile>
__device__ __forceinline__ void erase_nonfinite(std::uint32_t tile) {
  const auto finite = [](std::uint32_t pair) {
    return (is<T>(Kind::nonfinite, pair & 0xFFFFu) ? 0u : pair & 0xFFFFu) |
           (is<T>(Kind::nonfinite, pair >> 16) ? 0u : pair & 0xFFFF0000u);
  };
  Tile::for_own_chunks([&](int, int, std::uint32_t at) {
    const uint4 x = ptx::load_shared<uint4>(tile + at);
    ptx::store_shared(tile + at, make_uint4(finite(x.x), finite(x.y), finite(x.z), finite(x.w)));
  });
}

// Pairs of a lane's two rows and up to 64 columns, in the order of accumulators: bit 4 n + e is element e of
// columns 8 n to 8 n + 7. Those that are visible, by whether the weight of the pair is 0.
struct SeenPairs {
  std::uint32_t weighted, weightless;
};

// visible(half, column).
template <int kColumns, class Visible>
__device__ __forceinline__ std::uint32_t visible_pairs(const Visible& visible) {
  static_assert(kColumns <= 64);
  std::uint32_t pairs = 0;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (visible(e / 2, 8 * n + column_of_lane() + e % 2)) pairs |= 1u << (4 * n + e);
  return pairs;
}
// With the weights as the product takes them, rounded to T.
template <class T, int kCount, class Visible>
__device__ __forceinline__ SeenPairs weighted_pairs(const float (&weights)[kCount][4],
                                                    const Visible& visible) {
  std::uint32_t zero = 0;
#pragma unroll
  for (int n = 0; n < kCount; ++n)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto pair = ptx::pack<typename Native<T>::type>(weights[n][2 * half], weights[n][2 * half + 1]);
      if ((pair & 0x7FFFu) == 0) zero |= 1u << (4 * n + 2 * half);
      if ((pair & 0x7FFF0000u) == 0) zero |= 2u << (4 * n + 2 * half);
    }
  const std::uint32_t seen = visible_pairs<8 * kCount>(visible);
  return {.weighted = seen & ~zero, .weightless = seen & zero};
}
// A 1 of type T for each of the pairs, as an A operand: columns 16 k ...
template <class T>
__device__ __forceinline__ void pairs_operand(Fragment& r, int k, std::uint32_t pairs) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t two = pairs >> (8 * k + i / 2 * 4 + i % 2 * 2);
    r[i] = ((two & 1u) != 0 ? Native<T>::kOne : 0u) | ((two & 2u) != 0 ? Native<T>::kOne << 16 : 0u);
  }
}

// sums (16 rows of a warp, all columns of the tile) get what their pairs meet in the tile. Weights are not
// negative, so that infinity keeps its sign. Without kWeights all pairs count as weightless.
template <class T, class Tile, int kColumns, bool kWeights = true, int kCount>
__device__ __forceinline__ void add_nonfinite(float (&sums)[kCount][4], std::uint32_t tile,
                                              const SeenPairs& seen) {
#pragma unroll 1
  for (int kind = kWeights ? 0 : 3; kind < 4; ++kind) {
    const std::uint32_t pairs = kind == 3 ? seen.weightless : seen.weighted;
    const float value = kind == 1 ? INFINITY : kind == 2 ? -INFINITY : NAN;
#pragma unroll
    for (int n = 0; n < kCount / 2; ++n) {
      float found[2][4];
      clear(found);
#pragma unroll 1
      for (int k = 0; k < kColumns / 16; ++k) {
        Fragment a, b;
        pairs_operand<T>(a, k, pairs);
        Tile::b(b, tile, n, k);
#pragma unroll
        for (std::uint32_t& pair : b) pair = places<T>(static_cast<Kind>(kind), pair);
        ptx::mma_m16n8k16<typename Native<T>::type>(found[0], a, b[0], b[1]);
        ptx::mma_m16n8k16<typename Native<T>::type>(found[1], a, b[2], b[3]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (found[i][e] > 0) sums[2 * n + i][e] += value;
    }
  }
}
// Where the tile's elements are factors of the weights' scores: a score that has a factor of infinity is
// infinite itself, its weight 0 or NaN, and both times infinity are NaN.
template <class T, class Tile, int kColumns, int kCount, class Visible>
__device__ __forceinline__ void add_nonfinite_factors(float (&sums)[kCount][4], std::uint32_t tile,
                                                      const Visible& visible) {
  add_nonfinite<T, Tile, kColumns, false>(sums, tile,
                                          {.weighted = 0, .weightless = visible_pairs<kColumns>(visible)});
}

}  // namespace ringattn::cuda::sm80
