// The arithmetic of one group of rows against 32 columns: scores of a warp's four rows, a lane each column,
// and sums over columns, a lane every 32nd dimension. Forward and backward are made of these.
#pragma once
#include "kernels/cuda/element.h"

namespace ringattn::cuda {

inline constexpr unsigned kAllColumns = ~0u;

// Elements of a row of `dim` in shared memory: whole float4, and one more, so that 8 lanes that read float4
// of 8 rows meet no bank twice.
__host__ __device__ constexpr int shared_stride(int dim) { return (dim + 3) / 4 * 4 + 4; }

// Copies `valid` rows, widened, and fills up with 0 to `count` rows. The block does it together; barriers are
// the caller's.
template <class T>
__device__ __forceinline__ void copy_rows(const Rows& from, index_t head, index_t first, int valid, int count,
                                          int dim, float* to) {
  const int fours = (dim + 3) / 4, stride = shared_stride(dim);
  for (int i = static_cast<int>(threadIdx.x); i < count * fours; i += kThreads) {
    const int row = i / fours, four = i % fours;
    float4 x = make_float4(0, 0, 0, 0);
    if (row < valid) x = load_four(row_at<const T>(from, head, first + row) + 4 * four);
    ptx::store_shared(reinterpret_cast<float4*>(to + row * stride + 4 * four), x);
  }
}

// s[r] = row r of the warp times this lane's column.
__device__ __forceinline__ void products(float (&s)[kWarpRows], const float* rows, const float* columns,
                                         int dim) {
  const int fours = (dim + 3) / 4, stride = shared_stride(dim);
  const float* column = columns + lane_index() * stride;
#pragma unroll
  for (int r = 0; r < kWarpRows; ++r) s[r] = 0;
#pragma unroll 1
  for (int four = 0; four < fours; ++four) {
    const float4 y = ptx::load_shared(reinterpret_cast<const float4*>(column + 4 * four));
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) {
      const float4 x = ptx::load_shared(reinterpret_cast<const float4*>(rows + r * stride + 4 * four));
      s[r] = fmaf(x.x, y.x, s[r]);
      s[r] = fmaf(x.y, y.y, s[r]);
      s[r] = fmaf(x.z, y.z, s[r]);
      s[r] = fmaf(x.w, y.w, s[r]);
    }
  }
}

// The columns that a step of a piece works on.
struct Step {
  index_t first;
  int columns;  // 1 to 32
  int lo, hi;   // column c of the step is visible to row i of the group iff lo <= c - i <= hi
  int row_begin, row_end;

  __device__ __forceinline__ bool visible(int row, int column) const {
    return column < columns && row_begin <= row && row < row_end && lo <= column - row && column - row <= hi;
  }
  // Whether every pair is visible, so that nothing need be masked.
  __device__ __forceinline__ bool all_visible() const {
    return columns == kColumns && row_begin == 0 && row_end == kGroupRows && lo <= -(kGroupRows - 1) &&
           hi >= kColumns - 1;
  }
};

__device__ __forceinline__ Step step_of(const Piece& piece, index_t first) {
  // All distances that matter are below 48; a band's ends may not even fit 32 bits.
  const auto near = [first](index_t x) {
    const index_t distance = x - first;
    return static_cast<int>(distance < -64 ? -64 : distance > 64 ? 64 : distance);
  };
  const index_t left = piece.end - first;
  return {.first = first,
          .columns = static_cast<int>(left < kColumns ? left : kColumns),
          .lo = near(piece.lo),
          .hi = near(piece.hi),
          .row_begin = piece.row_begin,
          .row_end = piece.row_end};
}

// Weights of the warp's rows in shared memory, [column][row], so that one load gives all four.
__device__ __forceinline__ void share_weights(float* weights, const float (&w)[kWarpRows]) {
  __syncwarp();  // those before have been read
  ptx::store_shared(reinterpret_cast<float4*>(weights) + lane_index(), make_float4(w[0], w[1], w[2], w[3]));
  __syncwarp();
}

// sums[r][t] += sum_c weight[c][r] * column[c][32 t + lane]. A hidden column is left out, not multiplied by
// 0: it may hold NaN. seen[r] has a bit for each visible column. The columns of a step are summed apart.
template <bool kMasked, int kTiles>
__device__ __forceinline__ void add_columns(float (&sums)[kWarpRows][kTiles], const float* weights,
                                            const float* columns, int dim, int count,
                                            const unsigned (&seen)[kWarpRows]) {
  const int stride = shared_stride(dim);
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int e = t * kWarpSize + lane_index();
    if (e >= dim) break;
    float part[kWarpRows] = {};
#pragma unroll 1
    for (int c = 0; c < count; ++c) {
      const float4 w = ptx::load_shared(reinterpret_cast<const float4*>(weights) + c);
      const float x = ptx::load_shared(columns + c * stride + e);
      const float by_row[kWarpRows] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int r = 0; r < kWarpRows; ++r)
        if (!kMasked || (seen[r] >> c & 1u)) part[r] = fmaf(by_row[r], x, part[r]);
    }
#pragma unroll
    for (int r = 0; r < kWarpRows; ++r) sums[r][t] += part[r];
  }
}

template <int kTiles>
__device__ __forceinline__ void add_columns(float (&sums)[kWarpRows][kTiles], const float* weights,
                                            const float* columns, int dim, int count,
                                            const unsigned (&seen)[kWarpRows]) {
  static_assert(kWarpRows == 4);
  if ((seen[0] & seen[1] & seen[2] & seen[3]) == kAllColumns) {
    add_columns<false>(sums, weights, columns, dim, count, seen);
  } else {
    add_columns<true>(sums, weights, columns, dim, count, seen);
  }
}

}  // namespace ringattn::cuda
