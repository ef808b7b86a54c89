// Online softmax on register tiles of scores (Milakov and Gimelshein, arXiv:1805.02867).
// Lanes are queries, so the maximum and the sum of a row are vertical operations: nothing is ever reduced
// across lanes, and no row's bits depend on its neighbours.
#if defined(RINGATTN_CPU_SOFTMAX_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_SOFTMAX_INL_H_
#undef RINGATTN_CPU_SOFTMAX_INL_H_
#else
#define RINGATTN_CPU_SOFTMAX_INL_H_
#endif

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// In units of log2: `shift` may lag behind the true maximum by this much before o and sum are rescaled.
// Probabilities are then at most 2^16, which costs fp32 no accuracy, and a rescale becomes rare.
inline constexpr float kLag = 16.0f;

// A strip of a group and how far it has come.
struct StripView {
  float* o;        // [dim_v][48], from the strip's first lane
  float* p;        // [kStepKeys / kCell][48] cells, likewise: probabilities of the step
  RowState* rows;  // of the whole group
  // [48], likewise from the first lane: sums of this step's probabilities, those of `rows` apart, and the
  // same as they are rounded, or `sum` again where they are not.
  float *sum, *weight;
  int lane;  // first lane of the strip
  int dim_v;
  Slope slope;
  int first_key[kVecs];  // P rows [first_key, key of the tile) of a vector are written
};

// Raises the maxima of those lanes whose score exceeds their limit, and of no others: a row must not depend
// on when its neighbours are raised. Rare, so kept out of line.
HWY_NOINLINE void Rescale(const StripView& strip, const float* tile_max, int key) {
  const Floats d;
  for (int v = 0; v < kVecs; ++v) {
    const int lane = strip.lane + v * kLanes;
    const Vec limit = hn::Load(d, strip.rows->limit + lane);
    const Vec shift = hn::Load(d, strip.rows->shift + lane);
    const Vec top = hn::Load(d, tile_max + v * kLanes);
    const auto raise = hn::Gt(top, limit);  // never for NaN
    if (hn::AllFalse(d, raise)) continue;
    // A lane that has seen nothing has o = sum = 0; its old maximum is -inf, which gives the factor 0.
    const Vec neg_inf = hn::Set(d, kNegInf);
    const Vec old = hn::IfThenElse(hn::Eq(limit, neg_inf), neg_inf, shift);
    const Vec fall = Exp2Scaled(hn::Sub(old, top), strip.slope);
    const Vec factor = hn::IfThenElse(raise, fall, hn::Set(d, 1.0f));
    const Vec lag = hn::Set(d, kLag / strip.slope.slope);
    hn::Store(hn::IfThenElse(raise, top, shift), d, strip.rows->shift + lane);
    hn::Store(hn::IfThenElse(raise, hn::Add(top, lag), limit), d, strip.rows->limit + lane);
    const auto rescale_row = [&](float* row) { hn::Store(hn::Mul(factor, hn::Load(d, row)), d, row); };
    rescale_row(strip.rows->sum + lane);
    rescale_row(strip.rows->weight + lane);
    rescale_row(strip.sum + v * kLanes);
    for (int c = 0; c < strip.dim_v; ++c) rescale_row(strip.o + c * kGroup + v * kLanes);
    [[maybe_unused]] Vec weight = hn::Zero(d);  // formed anew, since these are rounded once more
    for (int j = strip.first_key[v] / kCell; j < key / kCell; ++j) {
      float* cell = strip.p + j * kGroup + v * kLanes;
      Vec p[kCell];
      SplitCell(hn::Load(d, cell), p);
      for (Vec& x : p) x = hn::Mul(factor, x);
      const Vec rounded = MakeCell(p);
      hn::Store(rounded, d, cell);
      if constexpr (kCell > 1) weight = AddElements(rounded, weight);
    }
    if constexpr (kCell > 1) {
      float* of_lanes = strip.weight + v * kLanes;
      hn::Store(hn::IfThenElse(raise, weight, hn::Load(d, of_lanes)), d, of_lanes);
    }
  }
}

// Sets the scores of pairs that the piece does not show to -inf. `key`: first key of the tile.
template <int kFirst, int kLast>
HWY_INLINE void HideTile(const GroupStep& step, int strip_lane, int key, Vec (&s)[kRows][kVecs]) {
  const Floats d;
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    const int j = key + r;
    const bool shown = step.key_begin <= j && j < step.key_end;
    const int first = shown ? Greatest(step.lane_begin, j - step.hi) : 0;
    const int last = shown ? Least(step.lane_end, j - step.lo + 1) : 0;
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
      const auto visible = LanesBetween(strip_lane + v * kLanes, first, last);
      s[r][v] = hn::IfThenElse(visible, s[r][v], hn::Set(d, kNegInf));
    }
  }
}

// Turns vectors [kFirst, kLast) of a tile of scores into rows key .. key + kRows - 1 of P.
template <int kFirst, int kLast>
HWY_INLINE void SoftmaxTile(const StripView& strip, int key, Vec (&s)[kRows][kVecs]) {
  const Floats d;
  // Pointers of our own: a vector store may alias anything, so g++ would fetch them from `strip` each time.
  float* const sum_of = strip.sum;
  [[maybe_unused]] float* const weight_of = strip.weight;
  const float* const shift_of = strip.rows->shift + strip.lane;
  const float* const limit_of = strip.rows->limit + strip.lane;
  float* const p_row = strip.p + key / kCell * kGroup;
  Vec top[kVecs];
  RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
    // Max may lose a NaN. That is harmless: exp2 of the NaN score makes sum and o of its lane NaN.
    top[v] = s[0][v];
    RINGATTN_UNROLL for (int r = 1; r < kRows; ++r) top[v] = hn::Max(top[v], s[r][v]);
  }
  auto raise = hn::Gt(top[kFirst], hn::Load(d, limit_of + kFirst * kLanes));
  RINGATTN_UNROLL for (int v = kFirst + 1; v < kLast; ++v) {
    raise = hn::Or(raise, hn::Gt(top[v], hn::Load(d, limit_of + v * kLanes)));
  }
  if (HWY_UNLIKELY(!hn::AllFalse(d, raise))) {
    alignas(64) float tile_max[kStrip];
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) {
      const bool used = kFirst <= v && v < kLast;
      hn::Store(used ? top[used ? v : kFirst] : hn::Set(d, kNegInf), d, tile_max + v * kLanes);
    }
    Rescale(strip, tile_max, key);
  }
  const Slope slope = strip.slope;
  RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
    const Vec shift = hn::Load(d, shift_of + v * kLanes);
    Vec sum = hn::Load(d, sum_of + v * kLanes);
    [[maybe_unused]] Vec weight = sum;
    if constexpr (kCell > 1) weight = hn::Load(d, weight_of + v * kLanes);
    RINGATTN_UNROLL for (int r = 0; r < kRows; r += kCell) {
      Vec p[kCell];
      RINGATTN_UNROLL for (int e = 0; e < kCell; ++e) {
        p[e] = Exp2Scaled<kForwardDegree>(hn::Sub(s[r + e][v], shift), slope);
        sum = hn::Add(sum, p[e]);
      }
      const Vec cell = MakeCell(p);
      hn::Store(cell, d, p_row + r / kCell * kGroup + v * kLanes);
      if constexpr (kCell > 1) weight = AddElements(cell, weight);
    }
    hn::Store(sum, d, sum_of + v * kLanes);
    if constexpr (kCell > 1) hn::Store(weight, d, weight_of + v * kLanes);
  }
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
