// Rows between the caller's tensors and the arrays of the kernels: a warp to a row, bound by memory.
#pragma once
#include "kernels/cuda/finished.h"

namespace ringattn::cuda {

// Element e of a row, turned with its partner if it belongs to the leading turn.dim ones. `read(e)` gives an
// element before. Turning back is turning by the negative angle.
template <class Read>
__device__ __forceinline__ float turned(const Turn& turn, index_t row, int e, const Read& read) {
  if (e >= turn.dim) return read(e);
  const int pairs = turn.dim / 2;
  const int pair = turn.interleaved ? e / 2 : e % pairs;
  const int first = turn.interleaved ? 2 * pair : pair, second = turn.interleaved ? first + 1 : pair + pairs;
  const float cos = ptx::load_global(turn.angles + row * turn.dim + pair);
  const float sin = ptx::load_global(turn.angles + row * turn.dim + pairs + pair);
  const float x = read(first), y = read(second), s = turn.back ? -sin : sin;
  return e == first ? x * cos - y * s : x * s + y * cos;
}

// The product in double has one rounding, whatever the size of the factor.
__device__ __forceinline__ float times(float x, double factor) {
  return factor == 1 ? x : static_cast<float>(static_cast<double>(x) * factor);
}

template <class T>
__global__ void __launch_bounds__(kThreads) load_kernel(LoadParams a) {
  const index_t warp = global_warp();
  if (warp >= a.all_heads * a.to.rows) return;
  const index_t all_head = warp / a.to.rows, row = warp % a.to.rows;
  T* const to = row_at<T>(a.to, all_head, row);
  const T* const from =
      row < a.rows ? row_at<const T>(a.from, all_head / a.heads, all_head % a.heads, row) : nullptr;
  const auto read = [&](int e) { return times(widen(ptx::load_global(from + e)), a.factor); };
  for (int e = lane_index(); e < a.to.stride; e += kWarpSize)
    ptx::store_global(to + e, narrow<T>(row < a.rows && e < a.dim ? turned(a.turn, row, e, read) : 0.0f));
}

template <class T>
__global__ void __launch_bounds__(kThreads) store_kernel(StoreParams a) {
  const index_t warp = global_warp();
  if (warp >= a.all_heads * a.rows) return;
  const index_t all_head = warp / a.rows, row = warp % a.rows;
  T* const to = row_at<T>(a.to, all_head / a.heads, all_head % a.heads, row);
  const float* const from = row_at<const float>(a.from, all_head, row);
  const auto read = [&](int e) { return times(ptx::load_global(from + e), a.factor); };
  for (int e = lane_index(); e < a.dim; e += kWarpSize)
    ptx::store_global(to + e, narrow<T>(turned(a.turn, row, e, read)));
}

template <class T>
__global__ void __launch_bounds__(kThreads) finish_kernel(FinishParams a) {
  const index_t warp = global_warp(), listed = a.groups * a.group_rows, head = warp / listed;
  if (head >= a.all_heads) return;
  const index_t group = warp % listed / a.group_rows;
  const index_t first = a.first_rows ? ptx::load_global(a.first_rows + group) : group * a.group_rows;
  const index_t row = first + warp % a.group_rows, state = head * a.o.rows + row;
  if (row >= a.rows) return;
  const float sum = ptx::load_global(a.sum + state);
  T* const out = out_row<T>(a.to, head, row);
  const float* const o = row_at<const float>(a.o, head, row);
  for (int e = lane_index(); e < a.dim_v; e += kWarpSize)
    ptx::store_global(out + e, finished<T>(ptx::load_global(o + e), sum));
  if (lane_index() == 0) store_lse(a.to, head, row, ptx::load_global(a.maximum + state), sum, a.slope);
}

template <class T>
__device__ __forceinline__ void clear_row(const Rows& rows, index_t head, index_t row) {
  T* const to = row_at<T>(rows, head, row);
  for (int e = lane_index(); e < rows.stride; e += kWarpSize) ptx::store_global(to + e, narrow<T>(0));
}

// Sums in double: delta is subtracted from numbers of its own size. A row that saw nothing may hold anything
// and adds nothing to the gradients of keys: with rows of 0 that is so even in a product of matrices.
template <class T>
__global__ void __launch_bounds__(kThreads) row_numbers_kernel(RowNumbersParams a) {
  const index_t warp = global_warp();
  if (warp >= a.all_heads * a.rows) return;
  const index_t all_head = warp / a.rows, row = warp % a.rows;
  const index_t batch = all_head / a.heads, head = all_head % a.heads;
  const T* const dout = row_at<const T>(a.dout, batch, head, row);
  const T* const out = row_at<const T>(a.out, batch, head, row);
  double delta = 0;
  for (int e = lane_index(); e < a.dim_v; e += kWarpSize)
    delta += static_cast<double>(widen(ptx::load_global(dout + e))) *
             static_cast<double>(widen(ptx::load_global(out + e)));
  for (int bits = 1; bits < kWarpSize; bits *= 2) delta += ptx::shuffle_xor(delta, bits);
  const double lse = static_cast<double>(
      ptx::load_global(a.lse + batch * a.lse_stride[0] + head * a.lse_stride[1] + row * a.lse_stride[2]));
  if (lse == -INFINITY) {
    clear_row<T>(a.loaded_q, all_head, row);
    clear_row<T>(a.loaded_dout, all_head, row);
  }
  if (lane_index() != 0) return;
  const auto high = static_cast<float>(lse * a.log2e);
  const index_t at = all_head * a.stride + row;
  ptx::store_global(a.to.high + at, high);
  // Of infinity nothing remains but NaN.
  ptx::store_global(a.to.low + at,
                    isinf(high) ? 0.0f : static_cast<float>(lse * a.log2e - static_cast<double>(high)));
  ptx::store_global(a.to.delta + at, static_cast<float>(delta));
}

}  // namespace ringattn::cuda
