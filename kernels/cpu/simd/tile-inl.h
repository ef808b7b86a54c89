// The register tile: 8 or 4 rows (keys, or columns of V) by up to three vectors of queries. All FLOPs of the
// kernel are spent in MultiplyPanel.
#if defined(RINGATTN_CPU_TILE_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_TILE_INL_H_
#undef RINGATTN_CPU_TILE_INL_H_
#else
#define RINGATTN_CPU_TILE_INL_H_
#endif

#include "hwy/cache_control.h"
#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/softmax-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// acc[r][v] += sum over i < n of panel[8 i + r] * lanes[48 i + v] for vectors v in [kFirst, kLast), all of
// cells. `panel` is a K or V panel, or its lower half; `lanes` a strip of Q or of P. If kPrefetch, the panel
// `next_panel` cells further on is fetched meanwhile.
template <int kFirst, int kLast, bool kPrefetch>
HWY_INLINE void MultiplyPanel(const float* HWY_RESTRICT panel, const float* HWY_RESTRICT lanes, int n,
                              int next_panel, Vec (&acc)[kRows][kVecs]) {
  const Floats d;
  for (int i = 0; i < n; ++i) {
    if constexpr (kPrefetch) hwy::Prefetch(panel + next_panel + i * kPanel);
    Vec x[kVecs];
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) x[v] = hn::Load(d, lanes + i * kGroup + v * kLanes);
    RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
      const Vec y = hn::Set(d, panel[i * kPanel + r]);
      RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) acc[r][v] = AddProduct(y, x[v], acc[r][v]);
    }
  }
}

// Scores of keys key .. key + kRows - 1 against a strip, turned into rows of P.
template <int kFirst, int kLast, bool kPrefetch>
HWY_INLINE void ScoreTile(const GroupStep& step, const StripView& strip, const float* panel, int key,
                          bool hide) {
  const Floats d;
  const float* q = step.group.q + strip.lane;
  Vec s[kRows][kVecs];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) s[r][v] = hn::Zero(d);
  }
  const int depth = Cells(step.head_dim);
  MultiplyPanel<kFirst, kLast, kPrefetch>(panel, q, depth, kPanel * depth, s);
  if (HWY_UNLIKELY(hide)) HideTile<kFirst, kLast>(step, strip.lane, key, s);
  SoftmaxTile<kFirst, kLast>(strip, key, s);
}

HWY_INLINE void ZeroTile(Vec (&acc)[kRows][kVecs]) {
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(Floats());
  }
}

HWY_INLINE void AddTile(Vec (&acc)[kRows][kVecs], float* o) {
  const Floats d;
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) {
      float* to = o + r * kGroup + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[r][v]), d, to);
    }
  }
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
