// Backward: dQ^T += K^T dS^T of one group. Lanes are queries; a tile is kRows columns of K.
#if defined(RINGATTN_CPU_QUERY_GRADIENTS_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_QUERY_GRADIENTS_INL_H_
#undef RINGATTN_CPU_QUERY_GRADIENTS_INL_H_
#else
#define RINGATTN_CPU_QUERY_GRADIENTS_INL_H_
#endif

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/gradient_strip-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// Keys of a tile at most. AVX2 has too few registers to leave the L1 cache in peace: there dS of so many keys
// should stay in it.
inline constexpr int kQueryKeys = RINGATTN_AVX512 ? 256 : 128;

// Keys [begin, end), in whole tiles, that vectors [first, last) of a strip see something of. Both ends of a
// band move to higher lanes with the keys, so the vectors at hand change at most 2 * kVecs - 1 times.
struct KeySegment {
  int begin, end;
  Vectors vectors;
};
struct KeySegments {
  KeySegment list[2 * kVecs];
  int count = 0;
};

HWY_INLINE KeySegments SegmentsOf(const GradientStep& step, const KeyRange& strip) {
  KeySegments segments;
  for (int key = strip.first; key < strip.last; key += kRows) {
    const Vectors vectors = VectorsThatSee(step, strip.lane, key);
    if (vectors.first >= vectors.last) continue;
    KeySegment* last = segments.count > 0 ? &segments.list[segments.count - 1] : nullptr;
    if (last && last->end == key && last->vectors.first == vectors.first &&
        last->vectors.last == vectors.last) {
      last->end = key + kRows;
    } else {
      segments.list[segments.count++] = {key, key + kRows, vectors};
    }
  }
  return segments;
}

// kRows columns of dQ. `panel`: the columns, from the task's first key on.
HWY_NOINLINE void QueryEdgeTile(const GradientStep& step, const KeyRange& strip, const KeySegments& segments,
                                const float* panel, float* dq) {
  Vec acc[kRows][kVecs];
  ZeroTile(acc);
  for (int n = 0; n < segments.count; ++n) {
    const KeySegment& s = segments.list[n];
    const float* k = panel + s.begin / kCell * kPanel;
    const float* ds = step.ds_columns + s.begin / kCell * kGroup + strip.lane;
    const int cells = (s.end - s.begin) / kCell;
    WithVectors(s.vectors, [&](auto first, auto last) {
      MultiplyPanel<decltype(first)::value, decltype(last)::value, false>(k, ds, cells, 0, acc);
    });
  }
  AddTile(acc, dq);
}

// The same sums where K is not finite: a hidden key has dS = 0, and 0 * NaN would reach the row. Adds in the
// same order, so that rows that see no NaN keep their bits.
HWY_NOINLINE void QueryGradientsOfShown(const GradientStep& step, const KeyRange& strip) {
  const Floats d;
  for (int c = 0; c < step.head_dim; ++c) {
    const float* k = step.k_columns + c / kPanel * step.keys / kCell * kPanel + c % kPanel;
    for (int v = 0; v < kVecs; ++v) {
      const int lane = strip.lane + v * kLanes;
      Vec acc = hn::Zero(d);
      for (int j = strip.first; j < strip.last; j += kCell) {
        const Lanes seeing = LanesThatSee(step, j, j + kCell, lane, lane + kLanes);
        if (seeing.begin >= seeing.end) continue;
        hn::Mask<Floats> shown[kCell];
        for (int e = 0; e < kCell; ++e) shown[e] = ShownLanes(step, lane, j + e);
        const Vec ds = hn::Load(d, step.ds_columns + j / kCell * kGroup + lane);
        acc = AddProduct(KeepShown(shown, hn::Set(d, k[j / kCell * kPanel])), ds, acc);
      }
      float* dq = step.dq + c * kGroup + lane;
      hn::Store(hn::Add(hn::Load(d, dq), acc), d, dq);
    }
  }
}

template <bool kPrefetch>
HWY_INLINE void QueryTile(const GradientStep& step, const KeyRange& keys, const float* panel, float* dq) {
  Vec acc[kRows][kVecs];
  ZeroTile(acc);
  MultiplyPanel<0, kVecs, kPrefetch>(panel + keys.first / kCell * kPanel,
                                     step.ds_columns + keys.first / kCell * kGroup + keys.lane,
                                     (keys.last - keys.first) / kCell, step.keys / kCell * kPanel, acc);
  AddTile(acc, dq);
}

// All columns, of a strip that is whole.
HWY_INLINE void WholeQueryStrip(const GradientStep& step, const KeyRange& keys) {
  for (int c = 0; c < step.head_dim; c += kPanel) {
    RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
      const float* panel = step.k_columns + c * step.keys / kCell + half;
      float* dq = step.dq + (c + half) * kGroup + keys.lane;
      if (half == 0) {  // one tile a panel fetches the next one
        QueryTile<true>(step, keys, panel, dq);
      } else {
        QueryTile<false>(step, keys, panel, dq);
      }
    }
  }
}

HWY_INLINE void QueryStrip(const GradientStep& step, const KeyRange& strip) {
  if (strip.first == strip.last) return;
  if (HWY_LIKELY(strip.whole)) {
    for (int key = strip.first; key < strip.last; key += kQueryKeys)
      WholeQueryStrip(step, {strip.lane, key, Least(key + kQueryKeys, strip.last), true});
    return;
  }
  if (!step.k_finite) return QueryGradientsOfShown(step, strip);
  const KeySegments segments = SegmentsOf(step, strip);
  for (int c = 0; c < step.head_dim; c += kRows) {
    const float* panel = step.k_columns + c / kPanel * kPanel * step.keys / kCell + c % kPanel;
    QueryEdgeTile(step, strip, segments, panel, step.dq + c * kGroup + strip.lane);
  }
}

void QueryGradients(const GradientStep& step) {
  for (int s = 0; s < kStrips; ++s) QueryStrip(step, KeysOf(step, s * kStrip));
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
