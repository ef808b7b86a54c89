// Backward: dV += P^T dO and dK += dS^T Q of one group. Lanes are columns of dV and dK; a tile is kRows keys
// by up to three vectors of columns, and runs over the queries that see one of its keys.
#if defined(RINGATTN_CPU_KEY_GRADIENTS_INL_H_) == defined(RINGATTN_CELL_TOGGLE)
#ifdef RINGATTN_CPU_KEY_GRADIENTS_INL_H_
#undef RINGATTN_CPU_KEY_GRADIENTS_INL_H_
#else
#define RINGATTN_CPU_KEY_GRADIENTS_INL_H_
#endif

#include "kernels/cpu/simd/cell-inl.h"
#include "kernels/cpu/simd/gradient_strip-inl.h"
#include "kernels/cpu/simd/vectors-inl.h"

RINGATTN_BEFORE_CELLS();
namespace ringattn::cpu::RINGATTN_CELLS {

// One of the two products. `weights` is P or dS, [keys][48] plain elements. A cell is one query or two
// neighbours.
struct KeyProduct {
  const float *weights, *rows;  // rows [48 / kCell][stride] cells
  float* sum;                   // [keys][stride]
  int stride;
  bool finite;  // of the 48 rows
};

template <int kV>
HWY_INLINE void AddKeyTile(const Vec (&acc)[kRows][kV], float* sum, int stride) {
  const Floats d;
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kV; ++v) {
      float* to = sum + r * stride + v * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), acc[r][v]), d, to);
    }
  }
}

template <int kV>
HWY_INLINE void KeyTile(const KeyProduct& product, int key, Lanes lanes, int column) {
  const Floats d;
  const int stride = product.stride;
  const float* HWY_RESTRICT weights = product.weights + key * kRowCells;
  const float* HWY_RESTRICT rows = product.rows + column;
  Vec acc[kRows][kV];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kV; ++v) acc[r][v] = hn::Zero(d);
  }
  for (int i = lanes.begin / kCell; i < lanes.end / kCell; ++i) {
    Vec x[kV];
    RINGATTN_UNROLL for (int v = 0; v < kV; ++v) x[v] = hn::Load(d, rows + i * stride + v * kLanes);
    RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
      const Vec y = hn::Set(d, weights[r * kRowCells + i]);
      RINGATTN_UNROLL for (int v = 0; v < kV; ++v) acc[r][v] = AddProduct(y, x[v], acc[r][v]);
    }
  }
  AddKeyTile<kV>(acc, product.sum + key * stride + column, stride);
}

// The same sums where a pair is hidden and the rows are not finite: 0 * NaN would reach the key. Adds in the
// same order, so that keys that see no NaN keep their bits.
template <int kV>
HWY_NOINLINE void KeyTileOfShown(const GradientStep& step, const KeyProduct& product, int key, Lanes lanes,
                                 int column) {
  const Floats d;
  Vec acc[kRows][kV];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kV; ++v) acc[r][v] = hn::Zero(d);
    const Lanes seeing = LanesThatSee(step, key + r, key + r + 1, lanes.begin, lanes.end);
    for (int i = lanes.begin / kCell; i < lanes.end / kCell; ++i) {
      bool shown[kCell], any = false;
      for (int e = 0, lane = i * kCell; e < kCell; ++e, ++lane)
        any |= shown[e] = seeing.begin <= lane && lane < seeing.end && step.rows->alive[lane] != 0.0f;
      if (!any) continue;
      const Vec y = hn::Set(d, product.weights[(key + r) * kRowCells + i]);
      for (int v = 0; v < kV; ++v) {
        const Vec x = hn::Load(d, product.rows + i * product.stride + column + v * kLanes);
        acc[r][v] = AddProduct(y, KeepShown(shown, x), acc[r][v]);
      }
    }
  }
  AddKeyTile<kV>(acc, product.sum + key * product.stride + column, product.stride);
}

// All keys, kV vectors of columns.
template <int kV>
HWY_INLINE void KeyColumns(const GradientStep& step, const KeyProduct& product, int column) {
  for (int key = step.key_begin / kRows * kRows; key < step.key_end; key += kRows) {
    Lanes lanes = LanesThatSee(step, key, key + kRows, 0, kGroup);
    if (lanes.begin >= lanes.end) continue;
    // In whole cells: a lane that shares a cell shares a vector, so its weight is there and is 0.
    lanes = {lanes.begin / kCell * kCell, (lanes.end + kCell - 1) / kCell * kCell};
    if (HWY_UNLIKELY(!product.finite) && !AllShown(step, key, key + kRows, lanes.begin, lanes.end)) {
      KeyTileOfShown<kV>(step, product, key, lanes, column);
    } else {
      KeyTile<kV>(product, key, lanes, column);
    }
  }
}

void AddKeyProduct(const GradientStep& step, const KeyProduct& product, int dim) {
  // Three vectors a time, and the last four as two and two: a tile of one vector loads more than it
  // multiplies.
  for (int left = (dim + kLanes - 1) / kLanes, column = 0; left > 0;) {
    const int take = left == 4 ? 2 : Least(left, 3);
    if (take == 3) {
      KeyColumns<3>(step, product, column);
    } else if (take == 2) {
      KeyColumns<2>(step, product, column);
    } else {
      KeyColumns<1>(step, product, column);
    }
    left -= take;
    column += take * kLanes;
  }
}

void KeyGradients(const GradientStep& step) {
  AddKeyProduct(step,
                {.weights = step.p,
                 .rows = step.dout_rows,
                 .sum = step.dv,
                 .stride = step.v_stride,
                 .finite = step.rows->dout_finite},
                step.dim_v);
  AddKeyProduct(step,
                {.weights = step.ds,
                 .rows = step.q_rows,
                 .sum = step.dk,
                 .stride = step.k_stride,
                 .finite = step.rows->q_finite},
                step.head_dim);
}

}  // namespace ringattn::cpu::RINGATTN_CELLS
HWY_AFTER_NAMESPACE();
#endif  // include guard
