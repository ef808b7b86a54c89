// The partial states of a row, of parts of its keys, are added to its state. A warp to a row, bound by
// memory.
#pragma once
#include "kernels/cuda/element.h"

namespace ringattn::cuda {

// What is subtracted from maxima before exp2: a row that has seen nothing but -inf has a maximum of -inf, and
// -inf - -inf would be NaN; against 0 exp2 gives the 0 that is wanted.
__device__ __forceinline__ float merge_base(float maximum) { return maximum == -INFINITY ? 0 : maximum; }

// Sums of all parts are added up first, in their order, and then to the state, which may have nearly all the
// weight (params.h, kSpan). NaN is not seen by fmaxf and goes its way through the sums.
__global__ void __launch_bounds__(kThreads) merge_kernel(MergeParams a) {
  const index_t warp = global_warp(), head = warp / (a.count * a.state_rows);
  if (head >= a.all_heads) return;
  const index_t rest = warp % (a.count * a.state_rows), i = rest % a.state_rows;
  const Merge merge = ptx::load_global(a.merges + rest / a.state_rows);
  const index_t row = merge.first_row + i;
  if (row >= a.q_rows) return;
  const index_t first = head * a.part_o.rows + merge.first_state + i, state = head * a.o.rows + row;

  const float before = ptx::load_global(a.maximum + state), sum_before = ptx::load_global(a.sum + state);
  float now = before;
#pragma unroll 8
  for (index_t p = 0; p < merge.parts; ++p)
    now = fmaxf(now, ptx::load_global(a.part_maximum + first + p * a.state_rows));
  const float base = merge_base(now);
  const auto weight = [&](index_t p) {
    return exp2f(a.slope * (ptx::load_global(a.part_maximum + first + p * a.state_rows) - base));
  };
  const float scale = exp2f(a.slope * (before - base));
  float* const to = static_cast<float*>(a.o.data) + state * a.o.stride;
  const float* const from = static_cast<const float*>(a.part_o.data) + first * a.part_o.stride;
  for (index_t e = 4 * lane_index(); e < a.o.stride; e += 4 * kWarpSize) {  // a stride is a multiple of 4
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (index_t p = 0; p < merge.parts; ++p) {
      const float4 x = load_four(from + p * a.state_rows * a.part_o.stride + e);
      const float w = weight(p);
      sum = make_float4(fmaf(x.x, w, sum.x), fmaf(x.y, w, sum.y), fmaf(x.z, w, sum.z), fmaf(x.w, w, sum.w));
    }
    const float4 x = load_four(to + e);
    ptx::store_global(reinterpret_cast<float4*>(to + e),
                      make_float4(fmaf(x.x, scale, sum.x), fmaf(x.y, scale, sum.y), fmaf(x.z, scale, sum.z),
                                  fmaf(x.w, scale, sum.w)));
  }
  float sum = 0;
#pragma unroll 8
  for (index_t p = 0; p < merge.parts; ++p)
    sum = fmaf(ptx::load_global(a.part_sum + first + p * a.state_rows), weight(p), sum);
  __syncwarp();  // every lane has read what was before
  if (lane_index() != 0) return;
  ptx::store_global(a.maximum + state, now);
  ptx::store_global(a.sum + state, fmaf(sum_before, scale, sum));
}

}  // namespace ringattn::cuda
