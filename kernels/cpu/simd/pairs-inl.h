// What only the dot-product instruction needs besides the tiles: queries as pairs, and its measured ceiling.
#if defined(RINGATTN_CPU_PAIRS_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_PAIRS_INL_H_
#undef RINGATTN_CPU_PAIRS_INL_H_
#else
#define RINGATTN_CPU_PAIRS_INL_H_
#endif

#include <cstring>

#include "kernels/cpu/simd/cell-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// Rows 2 i and 2 i + 1 of [n][48] become row i, rounded to nearest even; an odd n ends with a 0. In place, or
// `to` lies elsewhere.
void PairRows(const float* from, index_t n, float* to) {
  const Floats d;
  for (index_t i = 0; i < n; i += kCell, to += kGroup) {
    for (int lane = 0; lane < kGroup; lane += kLanes) {
      const float* even = from + i * kGroup + lane;
      const Vec x[kCell] = {hn::Load(d, even), i + 1 < n ? hn::Load(d, even + kGroup) : hn::Zero(d)};
      hn::Store(MakeCell(x), d, to + lane);
    }
  }
}

// Back again: rows of n.
void SplitRows(const float* from, index_t n, float* to) {
  const Floats d;
  for (index_t i = 0; i < n; i += kCell, from += kGroup) {
    for (int lane = 0; lane < kGroup; lane += kLanes) {
      Vec x[kCell];
      SplitCell(hn::Load(d, from + lane), x);
      for (index_t e = 0; e < kCell && i + e < n; ++e) hn::Store(x[e], d, to + (i + e) * kGroup + lane);
    }
  }
}

// Where element (a, b) of 8 x 8 is half a % 2 of cell [a / 2][b], it becomes half b % 2 of cell [b / 2][a].
HWY_INLINE void RegroupBlock(const float* from, index_t from_stride, float* to, index_t to_stride) {
  alignas(64) static constexpr std::uint16_t kOrder[2][32] = {
      {0, 2, 1, 3, 16, 18, 17, 19, 32, 34, 33, 35, 48, 50, 49, 51,
       4, 6, 5, 7, 20, 22, 21, 23, 36, 38, 37, 39, 52, 54, 53, 55},
      {8,  10, 9,  11, 24, 26, 25, 27, 40, 42, 41, 43, 56, 58, 57, 59,
       12, 14, 13, 15, 28, 30, 29, 31, 44, 46, 45, 47, 60, 62, 61, 63}};
  const auto two_rows = [&](const float* row) {
    const __m256i lower = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row));
    const __m256i upper = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + from_stride));
    return _mm512_inserti64x4(_mm512_castsi256_si512(lower), upper, 1);
  };
  const __m512i first = two_rows(from), last = two_rows(from + 2 * from_stride);
  for (int half = 0; half < 2; ++half, to += 2 * to_stride) {
    const __m512i cells = _mm512_permutex2var_epi16(first, _mm512_load_si512(kOrder[half]), last);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(cells));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + to_stride), _mm512_extracti64x4_epi64(cells, 1));
  }
}

// Of n rows in pairs what does not fill the last block becomes 0.
void Regroup(const PairBlocks& blocks, index_t n) {
  const float* from = blocks.from;
  float* to = blocks.to;
  for (; n >= kPanel; n -= kPanel, from += blocks.from_step, to += blocks.to_step)
    RegroupBlock(from, blocks.from_stride, to, blocks.to_stride);
  if (n == 0) return;
  alignas(64) float rest[kPanel / kCell * kPanel] = {};
  for (index_t i = 0; i * kCell < n; ++i)
    std::memcpy(rest + i * kPanel, from + i * blocks.from_stride, kPanel * sizeof(float));
  RegroupBlock(rest, kPanel, to, blocks.to_stride);
}

// As FmaChains. The product of every pair is x * y - x * y, so that the accumulators stay what they are.
float DotChains(index_t iterations, float seed) {
  const Floats d;
  const Vec ones[kCell] = {hn::Set(d, seed), hn::Set(d, seed)}, signs[kCell] = {ones[0], hn::Neg(ones[1])};
  const Vec x = MakeCell(ones), y = MakeCell(signs);
  Vec acc[kRows][kVecs];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = hn::Set(d, seed + static_cast<float>(r * kVecs + v));
    }
  }
  for (index_t i = 0; i < iterations; ++i) {
    RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
      RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = AddProduct(x, y, acc[r][v]);
    }
  }
  Vec sum = hn::Zero(d);
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) sum = hn::Add(sum, acc[r][v]);
  }
  alignas(64) float lanes[kLanes];
  hn::Store(sum, d, lanes);
  return lanes[0];
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
