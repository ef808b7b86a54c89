// What only the dot-product instruction needs besides the tiles: queries as pairs, and its measured ceiling.
#if defined(RINGATTN_CPU_PAIRS_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_PAIRS_INL_H_
#undef RINGATTN_CPU_PAIRS_INL_H_
#else
#define RINGATTN_CPU_PAIRS_INL_H_
#endif

#include <cmath>

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
