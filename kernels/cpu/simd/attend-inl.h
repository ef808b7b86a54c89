// One group of queries against one block of keys: scores S^T = K Q^T tile by tile, probabilities P^T in an L1
// scratch, then O^T += V^T P^T. Lanes are queries throughout.
//
// Where a band or an edge of a tile crosses the block, work is skipped in units of kRows keys by one vector:
// of a causal block below, with 8 keys by 16 lanes a unit, the units marked . are not computed (lanes to the
// right, keys downwards):
//   x x x
//   x x x
//   . x x
//   . x x
//   . . x
//   . . x
#if defined(RINGATTN_CPU_ATTEND_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_ATTEND_INL_H_
#undef RINGATTN_CPU_ATTEND_INL_H_
#else
#define RINGATTN_CPU_ATTEND_INL_H_
#endif

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/softmax-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// Whether every pair of keys [j0, j1) and lanes [i0, i1) is visible.
HWY_INLINE bool AllVisible(const GroupStep& step, int j0, int j1, int i0, int i1) {
  return step.key_begin <= j0 && j1 <= step.key_end && step.lane_begin <= i0 && i1 <= step.lane_end &&
         j1 - 1 - i0 <= step.hi && j0 - (i1 - 1) >= step.lo;
}

// V of column `c` (a multiple of kRows) and key `key` (likewise).
HWY_INLINE const float* ValuesAt(const GroupStep& step, int c, int key) {
  const int block = key / kKeyBlock * kKeyBlock, rows = Least(step.v_rows - block, kKeyBlock);
  const int column = c / kPanel * kPanel;
  return step.v + (block * step.dim_v + column * rows + (key - block) * kPanel) / kCell + (c - column);
}
// The first key after `key` whose V does not follow that of its predecessors.
HWY_INLINE int EndOfValues(int key) { return key / kKeyBlock * kKeyBlock + kKeyBlock; }

// Keys [begin, end), in whole tiles of one block, that vectors [first, last) of a strip see something of.
struct Segment {
  int begin, end, first, last;
};

// One strip's way through the block. Both ends of a band move to higher lanes with the keys, so the vectors
// at hand change at most 2 * kVecs - 1 times; a segment may end at each block of keys, too.
struct Strip {
  StripView view;
  int first_key = 0, last_key = 0;      // in whole tiles
  int first_shown = 0, last_shown = 0;  // likewise: every lane sees every one of these keys
  bool whole = false;                   // they are the same
  Segment segments[2 * kVecs + kStepKeys / kKeyBlock];
  int count = 0, started = 0;  // vectors below `started` have seen a key
};

HWY_INLINE void Prepare(const GroupStep& step, int lane, float* p, float (&sums)[kCell][kGroup],
                        Strip& strip) {
  strip.view = {.o = step.group.o + lane,
                .p = p + lane,
                .rows = step.group.rows,
                .sum = sums[0] + lane,
                .weight = sums[kCell - 1] + lane,
                .lane = lane,
                .dim_v = step.dim_v,
                .slope = MakeSlope(step.slope),
                .first_key = {}};
  const int i0 = Greatest(lane, step.lane_begin), i1 = Least(lane + kStrip, step.lane_end);
  const int first = Greatest(step.key_begin, i0 + step.lo), last = Least(step.key_end, i1 + step.hi);
  if (i0 >= i1 || first >= last) return;
  strip.first_key = first / kRows * kRows;
  strip.last_key = (last + kRows - 1) / kRows * kRows;
  if (step.lane_begin <= lane && lane + kStrip <= step.lane_end) {
    const int begin = Greatest(step.key_begin, lane + kStrip - 1 + step.lo);
    strip.first_shown = (begin + kRows - 1) / kRows * kRows;
    strip.last_shown = Least(step.key_end, lane + 1 + step.hi) / kRows * kRows;
  }
  strip.whole = strip.first_shown == strip.first_key && strip.last_shown == strip.last_key;
  if (!strip.whole) return;
  strip.segments[0] = {strip.first_key, strip.last_key, 0, kVecs};
  strip.count = 1;
  for (int v = 0; v < kVecs; ++v) strip.view.first_key[v] = strip.first_key;
}

// That a strip which is not whole uses vectors [first, last) from `key` on.
HWY_INLINE void Note(Strip& strip, int key, int first, int last) {
  while (strip.started < last) strip.view.first_key[strip.started++] = key;
  if (strip.count == 0 || key % kKeyBlock == 0 || strip.segments[strip.count - 1].first != first ||
      strip.segments[strip.count - 1].last != last) {
    strip.segments[strip.count++] = {key, key, first, last};
  }
  strip.segments[strip.count - 1].end = key + kRows;
}

// A tile that not every lane of the strip sees all of.
HWY_NOINLINE void EdgeTile(const GroupStep& step, Strip& strip, const float* panel, int key) {
  const int lane = strip.view.lane;
  const int lowest = Greatest(Greatest(step.lane_begin, key - step.hi) - lane, 0);
  const int end = Least(Least(step.lane_end, key + kRows - step.lo) - lane, kStrip);
  if (lowest >= end) return;
  const int first = lowest / kLanes, last = (end + kLanes - 1) / kLanes;
  Note(strip, key, first, last);
  const bool hide = !AllVisible(step, key, key + kRows, lane + first * kLanes, lane + last * kLanes);
  static_assert(kVecs == 3, "the cases below are the runs of neighbours among three vectors");
  switch (first * 4 + last) {
    case 0 * 4 + 1:
      return ScoreTile<0, 1, false>(step, strip.view, panel, key, hide);
    case 0 * 4 + 2:
      return ScoreTile<0, 2, false>(step, strip.view, panel, key, hide);
    case 0 * 4 + 3:
      return ScoreTile<0, 3, false>(step, strip.view, panel, key, hide);
    case 1 * 4 + 2:
      return ScoreTile<1, 2, false>(step, strip.view, panel, key, hide);
    case 1 * 4 + 3:
      return ScoreTile<1, 3, false>(step, strip.view, panel, key, hide);
    case 2 * 4 + 3:
      return ScoreTile<2, 3, false>(step, strip.view, panel, key, hide);
  }
}

// Adds what the segments see of kRows columns of V, from column c on.
HWY_NOINLINE void EdgeOutputTile(const GroupStep& step, const Strip& strip, int c) {
  Vec acc[kRows][kVecs];
  constexpr bool kFetch = kRows == kPanel;
  const int next_panel = Least(step.v_rows, kKeyBlock) / kCell * kPanel;
  ZeroTile(acc);
  for (int n = 0; n < strip.count; ++n) {
    const Segment& s = strip.segments[n];
    const float* values = ValuesAt(step, c, s.begin);
    const float* p = strip.view.p + s.begin / kCell * kGroup;
    const int cells = (s.end - s.begin) / kCell;
    switch (s.first * 4 + s.last) {
      case 0 * 4 + 1:
        MultiplyPanel<0, 1, kFetch>(values, p, cells, next_panel, acc);
        break;
      case 0 * 4 + 2:
        MultiplyPanel<0, 2, kFetch>(values, p, cells, next_panel, acc);
        break;
      case 0 * 4 + 3:
        MultiplyPanel<0, 3, kFetch>(values, p, cells, next_panel, acc);
        break;
      case 1 * 4 + 2:
        MultiplyPanel<1, 2, kFetch>(values, p, cells, next_panel, acc);
        break;
      case 1 * 4 + 3:
        MultiplyPanel<1, 3, kFetch>(values, p, cells, next_panel, acc);
        break;
      case 2 * 4 + 3:
        MultiplyPanel<2, 3, kFetch>(values, p, cells, next_panel, acc);
        break;
    }
  }
  AddTile(acc, strip.view.o + c * kGroup);
}

template <bool kPrefetch>
HWY_INLINE void OutputTile(const GroupStep& step, const Strip& strip, int c) {
  Vec acc[kRows][kVecs];
  ZeroTile(acc);
  for (int key = strip.first_key, end = 0; key < strip.last_key; key = end) {
    end = Least(EndOfValues(key), strip.last_key);
    const int next_panel = Least(step.v_rows, kKeyBlock) / kCell * kPanel;
    MultiplyPanel<0, kVecs, kPrefetch>(ValuesAt(step, c, key), strip.view.p + key / kCell * kGroup,
                                       (end - key) / kCell, next_panel, acc);
  }
  AddTile(acc, strip.view.o + c * kGroup);
}

// `cell`, elements of key j (and j + 1), with 0 in its place where the lane does not see the key.
HWY_INLINE Vec VisiblePart(const GroupStep& step, int lane, int j, Vec cell) {
  hn::Mask<Floats> visible[kCell];
  for (int e = 0; e < kCell; ++e, ++j) {
    const bool shown = step.key_begin <= j && j < step.key_end;
    visible[e] = LanesBetween(lane, shown ? Greatest(step.lane_begin, j - step.hi) : 0,
                              shown ? Least(step.lane_end, j - step.lo + 1) : 0);
  }
  return KeepShown(visible, cell);
}

// The same sums for a block whose V is not finite: a hidden key has probability 0, and 0 * NaN would reach
// the row. Adds in the same order, so that rows without a NaN keep their bits.
HWY_NOINLINE void OutputOfVisible(const GroupStep& step, const Strip& strip) {
  const Floats d;
  for (int c = 0; c < step.dim_v; ++c) {
    Vec acc[kVecs] = {hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int n = 0; n < strip.count; ++n) {
      const Segment& s = strip.segments[n];
      const float* values = ValuesAt(step, c / kPanel * kPanel, s.begin) + c % kPanel;
      for (int j = s.begin; j < s.end; j += kCell, values += kPanel) {
        for (int v = s.first; v < s.last; ++v) {
          const Vec value = VisiblePart(step, strip.view.lane + v * kLanes, j, hn::Set(d, *values));
          const Vec p = hn::Load(d, strip.view.p + j / kCell * kGroup + v * kLanes);
          acc[v] = AddProduct(value, p, acc[v]);
        }
      }
    }
    for (int v = 0; v < kVecs; ++v) {
      float* o = strip.view.o + c * kGroup + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, o), acc[v]), d, o);
    }
  }
}

// A part of what the next group will read, towards the L2 cache.
HWY_INLINE void PrefetchNext(const GroupStep& step, int panel, int panels) {
  constexpr int kLine = 64;
  for (const MemoryRows& next : step.next) {
    const int a_panel = (next.rows + panels - 1) / panels;
    for (int row = panel * a_panel; row < Least((panel + 1) * a_panel, next.rows); ++row) {
      const std::byte* at = next.at + row * next.stride;
      for (int byte = 0; byte < next.row_bytes; byte += kLine) __builtin_prefetch(at + byte, 0, 2);
    }
  }
}

HWY_INLINE void ScoreStrips(const GroupStep& step, Strip (&strips)[kStrips]) {
  int first = kStepKeys, last = 0;
  for (const Strip& strip : strips) {
    if (strip.first_key == strip.last_key) continue;
    first = Least(first, strip.first_key);
    last = Greatest(last, strip.last_key);
  }
  const int first_panel = first / kPanel, panels = (last + kPanel - 1) / kPanel - first_panel;
  for (int key = first_panel * kPanel; key < last; key += kPanel) {
    if (HWY_UNLIKELY(step.next[0].rows > 0)) PrefetchNext(step, key / kPanel - first_panel, panels);
    RINGATTN_UNROLL for (int s = 0; s < kStrips; ++s) {
      RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
        Strip& strip = strips[s];
        const int row = key + half;
        if (row < strip.first_key || row >= strip.last_key) continue;
        const float* panel = step.k + key * Cells(step.head_dim) + half;
        if (HWY_UNLIKELY(row < strip.first_shown || row >= strip.last_shown)) {
          EdgeTile(step, strip, panel, row);
          continue;
        }
        if (HWY_UNLIKELY(!strip.whole)) Note(strip, row, 0, kVecs);
        if (s == 0 && half == 0) {  // one tile a panel fetches the next one
          ScoreTile<0, kVecs, true>(step, strip.view, panel, row, false);
        } else {
          ScoreTile<0, kVecs, false>(step, strip.view, panel, row, false);
        }
      }
    }
  }
}

HWY_INLINE void OutputStrips(const GroupStep& step, const Strip (&strips)[kStrips]) {
  for (int c = 0; c < step.dim_v; c += kPanel) {
    RINGATTN_UNROLL for (int s = 0; s < kStrips; ++s) {
      const Strip& strip = strips[s];
      if (strip.count == 0 || (!step.v_finite && !strip.whole)) continue;
      RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
        if (HWY_UNLIKELY(!strip.whole)) {
          EdgeOutputTile(step, strip, c + half);
        } else if (s == 0 && half == 0) {
          OutputTile<true>(step, strip, c + half);
        } else {
          OutputTile<false>(step, strip, c + half);
        }
      }
    }
  }
  for (const Strip& strip : strips)
    if (!step.v_finite && !strip.whole) OutputOfVisible(step, strip);
}

void Attend(const GroupStep& step) {
  alignas(64) float p[kStepKeys / kCell * kGroup];
  alignas(64) float sums[kCell][kGroup] = {};
  Strip strips[kStrips];
  for (int s = 0; s < kStrips; ++s) Prepare(step, s * kStrip, p, sums, strips[s]);
  ScoreStrips(step, strips);
  OutputStrips(step, strips);
  const Floats d;
  for (int lane = 0; lane < kGroup; lane += kLanes) {
    float *sum = step.group.rows->sum + lane, *weight = step.group.rows->weight + lane;
    hn::Store(hn::Add(hn::Load(d, sum), hn::Load(d, sums[0] + lane)), d, sum);
    hn::Store(hn::Add(hn::Load(d, weight), hn::Load(d, sums[kCell - 1] + lane)), d, weight);
  }
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
