// One group of queries against one block of keys: scores S^T = K Q^T tile by tile, probabilities P^T in an L1
// scratch, then O^T += V^T P^T. Lanes are queries throughout.
#if defined(RINGATTN_CPU_ATTEND_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_ATTEND_INL_H_
#undef RINGATTN_CPU_ATTEND_INL_H_
#else
#define RINGATTN_CPU_ATTEND_INL_H_
#endif

#include "hwy/cache_control.h"
#include "kernels/cpu/simd/softmax-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

// acc[r][v] += sum over i < n of panel[8 i + r] * lanes[48 i + v]: all FLOPs are spent here. `panel` is a K
// or V panel, or its lower half; `lanes` a strip of Q or of P. The panel after this one is prefetched.
template <bool kPrefetch>
HWY_INLINE void MultiplyPanel(const float* HWY_RESTRICT panel, const float* HWY_RESTRICT lanes, int n,
                              int next_panel, Vec (&acc)[kRows][kVecs]) {
  const Floats d;
  for (int i = 0; i < n; ++i) {
    if constexpr (kPrefetch) hwy::Prefetch(panel + next_panel + i * kPanel);
    Vec x[kVecs];
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) x[v] = hn::Load(d, lanes + i * kGroup + v * kLanes);
    RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
      const Vec y = hn::Set(d, panel[i * kPanel + r]);
      RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(y, x[v], acc[r][v]);
    }
  }
}

// Keys that a strip meets, whole tiles; `whole`: every lane sees every one of them.
struct StripKeys {
  int first = 0, last = 0;
  bool whole = false;
};

HWY_INLINE int Least(int a, int b) { return a < b ? a : b; }
HWY_INLINE int Greatest(int a, int b) { return a > b ? a : b; }

// Whether every pair of keys [j0, j1) and lanes [i0, i1) is visible.
HWY_INLINE bool AllVisible(const GroupStep& step, int j0, int j1, int i0, int i1) {
  return step.key_begin <= j0 && j1 <= step.key_end && step.lane_begin <= i0 && i1 <= step.lane_end &&
         j1 - 1 - i0 <= step.hi && j0 - (i1 - 1) >= step.lo;
}

HWY_INLINE StripKeys KeysOfStrip(const GroupStep& step, int lane) {
  const int i0 = Greatest(lane, step.lane_begin), i1 = Least(lane + kStrip, step.lane_end);
  if (i0 >= i1) return {};
  const int first = Greatest(step.key_begin, i0 + step.lo);
  const int last = Least(step.key_end, i1 + step.hi);
  if (first >= last) return {};
  StripKeys keys{.first = first / kRows * kRows, .last = (last + kRows - 1) / kRows * kRows};
  keys.whole = AllVisible(step, keys.first, keys.last, lane, lane + kStrip);
  return keys;
}

HWY_INLINE void ScoreTile(const GroupStep& step, const StripView& strip, bool whole, const float* panel,
                          int key, bool prefetch) {
  const Floats d;
  const float* q = step.group.q + strip.lane;
  Vec s[kRows][kVecs];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) s[r][v] = hn::Zero(d);
  }
  if (prefetch) {
    MultiplyPanel<true>(panel, q, step.head_dim, kPanel * step.head_dim, s);
  } else {
    MultiplyPanel<false>(panel, q, step.head_dim, 0, s);
  }
  if (HWY_UNLIKELY(!whole) && !AllVisible(step, key, key + kRows, strip.lane, strip.lane + kStrip))
    HideTile(step, strip.lane, key, s);
  SoftmaxTile(strip, key, s);
}

HWY_INLINE void OutputTile(float* o, const float* p, const float* panel, int keys, int next_panel,
                           bool prefetch) {
  const Floats d;
  Vec acc[kRows][kVecs];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Load(d, o + r * kGroup + v * kLanes);
  }
  if (prefetch) {
    MultiplyPanel<true>(panel, p, keys, next_panel, acc);
  } else {
    MultiplyPanel<false>(panel, p, keys, 0, acc);
  }
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) hn::Store(acc[r][v], d, o + r * kGroup + v * kLanes);
  }
}

// The same sums for a block whose V is not finite: a hidden key has probability 0, and 0 * NaN would reach
// the row. Adds in the same order, so that rows without a NaN keep their bits.
HWY_NOINLINE void OutputOfVisible(const GroupStep& step, const StripView& strip, StripKeys keys) {
  const Floats d;
  for (int j = keys.first; j < keys.last; ++j) {
    if (j < step.key_begin || j >= step.key_end) continue;
    const int first = Greatest(step.lane_begin, j - step.hi), last = Least(step.lane_end, j - step.lo + 1);
    for (int v = 0; v < kVecs; ++v) {
      const auto visible = LanesBetween(strip.lane + v * kLanes, first, last);
      const Vec p = hn::Load(d, strip.p + j * kGroup + v * kLanes);
      for (int c = 0; c < step.dim_v; ++c) {
        const float* value = step.v + (c / kPanel * step.v_rows + j) * kPanel + c % kPanel;
        float* o = strip.o + c * kGroup + v * kLanes;
        const Vec old = hn::Load(d, o);
        hn::Store(hn::IfThenElse(visible, hn::MulAdd(hn::Set(d, *value), p, old), old), d, o);
      }
    }
  }
}

void Attend(const GroupStep& step) {
  alignas(64) float p[kKeyBlock * kGroup];
  StripKeys keys[kStrips];
  StripView strips[kStrips];
  int first = kKeyBlock, last = 0;
  for (int s = 0; s < kStrips; ++s) {
    const int lane = s * kStrip;
    keys[s] = KeysOfStrip(step, lane);
    strips[s] = {.o = step.group.o + lane,
                 .p = p + lane,
                 .rows = step.group.rows,
                 .lane = lane,
                 .dim_v = step.dim_v,
                 .slope = step.slope,
                 .first_key = keys[s].first};
    if (keys[s].first == keys[s].last) continue;
    first = Least(first, keys[s].first);
    last = Greatest(last, keys[s].last);
  }

  for (int panel = first / kPanel * kPanel; panel < last; panel += kPanel) {
    bool prefetch = true;
    for (int s = 0; s < kStrips; ++s) {
      RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
        const int key = panel + half;
        if (key < keys[s].first || key >= keys[s].last) continue;
        ScoreTile(step, strips[s], keys[s].whole, step.k + panel * step.head_dim + half, key, prefetch);
        prefetch = false;
      }
    }
  }

  const int next_panel = step.v_rows * kPanel;
  for (int c = 0; c < step.dim_v; c += kPanel) {
    bool prefetch = true;
    for (int s = 0; s < kStrips; ++s) {
      if (keys[s].first == keys[s].last || (!step.v_finite && !keys[s].whole)) continue;
      RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
        const float* panel = step.v + c * step.v_rows + keys[s].first * kPanel + half;
        OutputTile(strips[s].o + (c + half) * kGroup, strips[s].p + keys[s].first * kGroup, panel,
                   keys[s].last - keys[s].first, next_panel, prefetch);
        prefetch = false;
      }
    }
  }
  for (int s = 0; s < kStrips && !step.v_finite; ++s)
    if (keys[s].first < keys[s].last && !keys[s].whole) OutputOfVisible(step, strips[s], keys[s]);
}

// NaN and infinity both give NaN when multiplied by 0.
bool AllFinite(const float* x, index_t n) {
  const Floats d;
  Vec sum = hn::Zero(d);
  index_t i = 0;
  for (; i + kLanes <= n; i += kLanes) sum = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), sum);
  bool finite = hn::AllTrue(d, hn::Eq(sum, sum));
  for (; i < n; ++i) finite &= x[i] * 0.0f == 0.0f;
  return finite;
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
