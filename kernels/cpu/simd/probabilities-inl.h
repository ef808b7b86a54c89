// Backward, first half: probabilities P^T = 2^(slope * K Q^T - lse * log2 e) and dS^T = P^T (V dO^T - delta)
// of one group against a task's keys, into scratch. Lanes are queries. Pairs that are hidden get 0 by a
// select, not by arithmetic, so that no NaN of theirs survives.
#if defined(RINGATTN_CPU_PROBABILITIES_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_PROBABILITIES_INL_H_
#undef RINGATTN_CPU_PROBABILITIES_INL_H_
#else
#define RINGATTN_CPU_PROBABILITIES_INL_H_
#endif

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/gradient_strip-inl.h"
#include "kernels/cpu/simd/tile-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

template <int kFirst, int kLast>
HWY_INLINE void ZeroHidden(const GradientStep& step, int lane, int key, Vec (&x)[kRows][kVecs]) {
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
      x[r][v] = hn::IfThenElseZero(ShownLanes(step, lane + v * kLanes, key + r), x[r][v]);
    }
  }
}

// `to` has rows of plain elements, `columns` cells of neighbouring keys; without pairs they are the same.
template <int kFirst, int kLast>
HWY_INLINE void StoreTile(const Vec (&x)[kRows][kVecs], float* to, [[maybe_unused]] float* columns) {
  RINGATTN_UNROLL for (int r = 0; r < kRows; r += kCell) {
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
      Vec rows[kCell];
      RINGATTN_UNROLL for (int e = 0; e < kCell; ++e) rows[e] = x[r + e][v];
      StoreRows(rows, to + r * kRowCells + v * kLanes / kCell);
      if constexpr (kCell > 1) {
        if (columns) hn::Store(MakeCell(rows), Floats(), columns + r / kCell * kGroup + v * kLanes);
      }
    }
  }
}

// Rows key .. key + kRows - 1 of P.
struct Probability {
  template <int kFirst, int kLast, bool kPrefetch>
  static HWY_INLINE void Tile(const GradientStep& step, int lane, int key, bool hide) {
    const Floats d;
    const int depth = Cells(step.head_dim);
    const float* panel = step.k + key / kPanel * kPanel * depth + key % kPanel;
    const float* const hi_of = step.rows->hi + lane;
    const float* const lo_of = step.rows->lo + lane;
    float* const to = step.p + key * kRowCells + lane / kCell;
    const Vec slope = hn::Set(d, step.slope);
    Vec s[kRows][kVecs];
    ZeroTile(s);
    MultiplyPanel<kFirst, kLast, kPrefetch>(panel, step.q + lane, depth, kPanel * depth, s);
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
      const Vec hi = hn::Load(d, hi_of + v * kLanes), lo = hn::Load(d, lo_of + v * kLanes);
      RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
        // Rounding may lift a score above its row's lse by a little, an lse that is not the row's by a lot.
        s[r][v] = Exp2<kBackwardDegree>(NotAboveZero(hn::Sub(hn::MulSub(s[r][v], slope, hi), lo)));
      }
    }
    if (HWY_UNLIKELY(hide)) ZeroHidden<kFirst, kLast>(step, lane, key, s);
    StoreTile<kFirst, kLast>(s, to, nullptr);
  }
};

// Rows of dS from those of P.
struct ScoreGradient {
  template <int kFirst, int kLast, bool kPrefetch>
  static HWY_INLINE void Tile(const GradientStep& step, int lane, int key, bool hide) {
    const Floats d;
    const int panel_cells = kPanel * Cells((step.dim_v + kPanel - 1) / kPanel * kPanel);
    const float* panel = step.v + key / kPanel * panel_cells + key % kPanel;
    const float* const delta_of = step.rows->delta + lane;
    const float* const p = step.p + key * kRowCells + lane / kCell;
    float* const to = step.ds + key * kRowCells + lane / kCell;
    float* const columns = step.ds_columns + key / kCell * kGroup + lane;
    Vec dp[kRows][kVecs];
    ZeroTile(dp);
    MultiplyPanel<kFirst, kLast, kPrefetch>(panel, step.dout + lane, Cells(step.dim_v), panel_cells, dp);
    RINGATTN_UNROLL for (int v = kFirst; v < kLast; ++v) {
      const Vec delta = hn::Load(d, delta_of + v * kLanes);
      RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
        dp[r][v] = hn::Mul(LoadRow(p + r * kRowCells + v * kLanes / kCell), hn::Sub(dp[r][v], delta));
      }
    }
    if (HWY_UNLIKELY(hide)) ZeroHidden<kFirst, kLast>(step, lane, key, dp);
    StoreTile<kFirst, kLast>(dp, to, columns);
  }
};

// A tile of a strip that is not whole.
template <class Kind>
HWY_NOINLINE void GradientEdgeTile(const GradientStep& step, int lane, int key) {
  const Vectors vectors = VectorsThatSee(step, lane, key);
  const bool hide =
      !AllShown(step, key, key + kRows, lane + vectors.first * kLanes, lane + vectors.last * kLanes);
  WithVectors(vectors, [&](auto first, auto last) {
    Kind::template Tile<decltype(first)::value, decltype(last)::value, false>(step, lane, key, hide);
  });
}

// A part of what the next step will read, towards the L2 cache: it comes from another cache or from memory,
// and takes 4 % of the time if it is waited for. `done` counts panels of both products.
HWY_INLINE void PrefetchNext(const GradientStep& step, int done) {
  const int panels = 2 * ((step.key_end + kPanel - 1) / kPanel - step.key_begin / kPanel);
  const int lines = (step.next_bytes + 63) / 64, a_panel = (lines + panels - 1) / panels;
  for (int line = done * a_panel; line < Least((done + 1) * a_panel, lines); ++line)
    __builtin_prefetch(step.next + line * 64, 0, 2);
}

template <class Kind>
HWY_INLINE void GradientTiles(const GradientStep& step, const KeyRange (&strips)[kStrips], int& done) {
  for (int key = step.key_begin / kPanel * kPanel; key < step.key_end; key += kPanel) {
    PrefetchNext(step, done++);
    RINGATTN_UNROLL for (int s = 0; s < kStrips; ++s) {
      RINGATTN_UNROLL for (int half = 0; half < kPanel; half += kRows) {
        const KeyRange& strip = strips[s];
        const int row = key + half;
        if (row < strip.first || row >= strip.last) continue;
        if (HWY_UNLIKELY(!strip.whole)) {
          GradientEdgeTile<Kind>(step, strip.lane, row);
        } else if (s == 0 && half == 0) {  // one tile a panel fetches the next one
          Kind::template Tile<0, kVecs, true>(step, strip.lane, row, false);
        } else {
          Kind::template Tile<0, kVecs, false>(step, strip.lane, row, false);
        }
      }
    }
  }
}

// First all of P, then all of dS: Q and dO of a group do not fit the L1 cache together.
void Probabilities(const GradientStep& step) {
  KeyRange strips[kStrips];
  for (int s = 0; s < kStrips; ++s) strips[s] = KeysOf(step, s * kStrip);
  int done = 0;
  GradientTiles<Probability>(step, strips, done);
  GradientTiles<ScoreGradient>(step, strips, done);
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
