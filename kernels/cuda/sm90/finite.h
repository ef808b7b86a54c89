// Chapter 3: NaN and infinity among the values of keys that some rows do not see. A product multiplies them
// by a weight of 0, which is NaN. So tiles that are hidden in part are searched for them; where there are
// any, which is rare, the product is formed of copies of 16 values at a time with 0 in their place, and they
// are added to the rows that see them by themselves. Rows that do not see them keep their bits: all else is
// added by the same instructions in the same order.
#pragma once
#include "kernels/convert.h"
#include "kernels/cuda/sm90/rows.h"
#include "kernels/cuda/sm90/shape.h"

namespace ringattn::cuda::sm90 {

// Both halves of a word at once: `exponent` has all bits of the exponents, and adding its lowest one carries
// into the sign where all of them are set.
template <class T>
struct HalfBits;
template <>
struct HalfBits<__nv_bfloat16> {
  static constexpr std::uint32_t exponent = 0x7F807F80, lowest = 0x00800080;
};
template <>
struct HalfBits<__half> {
  static constexpr std::uint32_t exponent = 0x7C007C00, lowest = 0x04000400;
};
// The sign bit of each half is set if that half is NaN or infinite.
template <class T>
__device__ __forceinline__ std::uint32_t infinite_halves(std::uint32_t pair) {
  return ((pair & HalfBits<T>::exponent) + HalfBits<T>::lowest) & 0x80008000u;
}
// Those halves become 0.
template <class T>
__device__ __forceinline__ std::uint32_t finite_halves(std::uint32_t pair) {
  return pair & ~((infinite_halves<T>(pair) >> 15) * 0xFFFFu);
}
__device__ __forceinline__ float widen_half(std::uint16_t bits, __nv_bfloat16*) {
  return f32_from_bf16(bits);
}
__device__ __forceinline__ float widen_half(std::uint16_t bits, __half*) { return f32_from_f16(bits); }
template <class T>
__device__ __forceinline__ float widen_half(std::uint32_t pair, int half) {
  return widen_half(static_cast<std::uint16_t>(pair >> 16 * half), static_cast<T*>(nullptr));
}

// Whether `found` holds for any thread of the warpgroup, which meets in named barrier 1 + consumer and tells
// itself by `words`, one a warp, aligned to 16 bytes.
__device__ __forceinline__ bool warpgroup_any(std::uint32_t (&words)[4], bool found, int consumer) {
  const bool warp_found = __any_sync(~0u, found) != 0;
  if (threadIdx.x % 32 == 0) ptx::store_shared(&words[threadIdx.x % kWarpgroup / 32], warp_found ? 1u : 0u);
  ptx::named_barrier_sync(1 + consumer, kWarpgroup);
  const uint4 all = ptx::load_shared(reinterpret_cast<const uint4*>(words));
  ptx::named_barrier_sync(1 + consumer, kWarpgroup);  // the words have been read
  return (all.x | all.y | all.z | all.w) != 0;
}

// Whether all of a tile is finite, the same answer for all threads of the warpgroup.
template <class T, int kPanels, int kBytes>
__device__ __forceinline__ bool all_finite(const std::uint8_t (&tile)[kPanels][kBytes],
                                           std::uint32_t (&words)[4], int consumer) {
  const std::uint32_t first = ptx::shared_address(tile);
  std::uint32_t found = 0;
#pragma unroll 4
  for (int at = static_cast<int>(threadIdx.x % kWarpgroup) * 16; at < kPanels * kBytes;
       at += kWarpgroup * 16) {
    const uint4 x = ptx::load_shared<uint4>(first + static_cast<std::uint32_t>(at));
    found |=
        infinite_halves<T>(x.x) | infinite_halves<T>(x.y) | infinite_halves<T>(x.z) | infinite_halves<T>(x.w);
  }
  return !warpgroup_any(words, found != 0, consumer);
}

// Rows [16 step, 16 step + 16) of all panels of a tile, without what is not finite. Byte for byte: a place in
// an atom means the same wherever the atom lies.
template <class T, int kPanels, int kBytes>
__device__ __forceinline__ void copy_finite(const std::uint8_t (&tile)[kPanels][kBytes], int step,
                                            std::uint8_t (&to)[kPanels][kDepthRowsBytes]) {
  const auto at = static_cast<std::uint32_t>(threadIdx.x % kWarpgroup * 16);
  static_assert(kDepthRowsBytes == kWarpgroup * 16);
#pragma unroll 1
  for (int panel = 0; panel < kPanels; ++panel) {
    uint4 x = ptx::load_shared<uint4>(ptx::shared_address(tile[panel]) +
                                      static_cast<std::uint32_t>(step * kDepthRowsBytes) + at);
    x.x = finite_halves<T>(x.x), x.y = finite_halves<T>(x.y);
    x.z = finite_halves<T>(x.z), x.w = finite_halves<T>(x.w);
    ptx::store_shared(ptx::shared_address(to[panel]) + at, x);
  }
}

// sums += w x of what is not finite in row x of a tile, the one of number `row`, for both of the thread's
// rows; w[h] is the weight for row h, where `seen[h]`. The sums are those of columns from 8 first_chunk on,
// in panels of kPanelBytes of which the first is at `panel`.
template <class T, int kPanelBytes, int kSums>
__device__ __forceinline__ void add_infinite(float (&sums)[kSums], std::uint32_t panel, int first_chunk,
                                             int row, const float (&w)[2], const bool (&seen)[2]) {
#pragma unroll
  for (int j = 0; j < kSums / 4; ++j) {
    // Chunks of 16 bytes are exchanged within a row, by the row's place in its atom.
    const int chunk = (first_chunk + j % 8) ^ row % 8;
    const std::uint32_t pair = ptx::load_shared<std::uint32_t>(
        panel + static_cast<std::uint32_t>(j / 8 * kPanelBytes + row * kPanelRowBytes + chunk * 16 +
                                           quad_lane() * 4));
    if (infinite_halves<T>(pair) == 0) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (seen[h] && (infinite_halves<T>(pair) >> (15 + 16 * e) & 1) != 0)
          sums[4 * j + 2 * h + e] += w[h] * widen_half<T>(pair, e);
  }
}

// sums += weights x tile, a step of 16 rows at a time, with what is not finite for those alone who see it:
// `seen(h, row)` for the thread's row h. `copy` is the warpgroup's own. See the head of this file.
template <class T, int kPanels, int kBytes, int kSteps, class Seen>
__device__ __forceinline__ void add_apart(float (&sums)[kPanels * kPanelColumns / 2],
                                          std::uint32_t (&weights)[kSteps][4],
                                          const std::uint8_t (&tile)[kPanels][kBytes],
                                          std::uint8_t (&copy)[kPanels][kDepthRowsBytes], int consumer,
                                          const Seen& seen) {
  const std::uint64_t operand =
      ptx::matrix_descriptor(ptx::shared_address(copy), kDepthRowsBytes, kAtomBytes);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    copy_finite<T>(tile, step, copy);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1 + consumer, kWarpgroup);
    ptx::pin(sums);
    ptx::pin(weights[step]);
    ptx::wgmma_fence();
    ptx::wgmma_rs<T, ptx::Major::mn>(sums, weights[step], operand, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::pin(sums);
    ptx::pin(weights[step]);
#pragma unroll 1
    for (int key = 0; key < kDepth; ++key) {
      // The lane of the quad that holds its weight, and where; see mma_m16n8k16.
      const int lane = static_cast<int>(threadIdx.x % 32 / 4 * 4) + key % 8 / 2, row = step * kDepth + key;
      float w[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        w[h] = widen_half<T>(ptx::shuffle(key < 8 ? weights[step][h] : weights[step][2 + h], lane), key % 2);
      const bool sees[2] = {seen(0, row), seen(1, row)};
      add_infinite<T, kBytes>(sums, ptx::shared_address(tile), 0, row, w, sees);
    }
    ptx::named_barrier_sync(1 + consumer, kWarpgroup);  // the copy has been read
  }
}

}  // namespace ringattn::cuda::sm90
