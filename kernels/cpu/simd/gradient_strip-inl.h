// What a strip of queries sees of a task's keys. Where a band or an edge of a tile crosses, work is skipped
// as in attend-inl.h, in units of kRows keys by one vector; what the probabilities skip, the gradients skip
// too.
#if defined(RINGATTN_CPU_GRADIENT_STRIP_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_GRADIENT_STRIP_INL_H_
#undef RINGATTN_CPU_GRADIENT_STRIP_INL_H_
#else
#define RINGATTN_CPU_GRADIENT_STRIP_INL_H_
#endif

#include <type_traits>

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// Whether every pair of keys [j0, j1) and lanes [i0, i1) is visible, to rows that have seen something.
HWY_INLINE bool AllShown(const GradientStep& step, int j0, int j1, int i0, int i1) {
  return step.key_begin <= j0 && j1 <= step.key_end && step.lane_begin <= i0 && i1 <= step.lane_end &&
         j1 - 1 - i0 <= step.hi && j0 - (i1 - 1) >= step.lo && step.rows->all_alive;
}

// Lanes [begin, end) among [from, to) that see one of keys [j0, j1); none if begin >= end.
struct Lanes {
  int begin, end;
};
HWY_INLINE Lanes LanesThatSee(const GradientStep& step, int j0, int j1, int from, int to) {
  const int first = Greatest(j0, step.key_begin), end = Least(j1, step.key_end);
  if (first >= end) return {0, 0};
  return {Greatest(from, Greatest(step.lane_begin, first - step.hi)),
          Least(to, Least(step.lane_end, end - step.lo))};
}

// The keys of a strip.
struct KeyRange {
  int lane;
  int first, last;  // in whole tiles; none if first == last
  bool whole;       // every lane sees every one of these keys
};
HWY_INLINE KeyRange KeysOf(const GradientStep& step, int lane) {
  const int i0 = Greatest(lane, step.lane_begin), i1 = Least(lane + kStrip, step.lane_end);
  const int first = Greatest(step.key_begin, i0 + step.lo), last = Least(step.key_end, i1 + step.hi);
  if (i0 >= i1 || first >= last) return {lane, 0, 0, false};
  const int begin = first / kRows * kRows, end = (last + kRows - 1) / kRows * kRows;
  return {lane, begin, end, AllShown(step, begin, end, lane, lane + kStrip)};
}

// Vectors [first, last) of a strip that see one of kRows keys; none if first >= last.
struct Vectors {
  int first, last;
};
HWY_INLINE Vectors VectorsThatSee(const GradientStep& step, int lane, int key) {
  const Lanes lanes = LanesThatSee(step, key, key + kRows, lane, lane + kStrip);
  if (lanes.begin >= lanes.end) return {0, 0};
  return {(lanes.begin - lane) / kLanes, (lanes.end - lane + kLanes - 1) / kLanes};
}

// The lanes of one vector that see key j.
HWY_INLINE hn::Mask<Floats> ShownLanes(const GradientStep& step, int lane, int j) {
  const Floats d;
  const Lanes lanes = LanesThatSee(step, j, j + 1, lane, lane + kLanes);
  const auto alive = hn::Ne(hn::Load(d, step.rows->alive + lane), hn::Zero(d));
  return hn::And(LanesBetween(lane, lanes.begin, lanes.end), alive);
}

// Calls body(first, last) with compile-time constants.
template <class Body>
HWY_INLINE void WithVectors(Vectors vectors, const Body& body) {
  static_assert(kVecs == 3, "the cases below are the runs of neighbours among three vectors");
  using std::integral_constant;
  const integral_constant<int, 0> v0{};
  const integral_constant<int, 1> v1{};
  const integral_constant<int, 2> v2{};
  const integral_constant<int, 3> v3{};
  switch (vectors.first * 4 + vectors.last) {
    case 0 * 4 + 1:
      return body(v0, v1);
    case 0 * 4 + 2:
      return body(v0, v2);
    case 0 * 4 + 3:
      return body(v0, v3);
    case 1 * 4 + 2:
      return body(v1, v2);
    case 1 * 4 + 3:
      return body(v1, v3);
    case 2 * 4 + 3:
      return body(v2, v3);
  }
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
