// Online softmax (Milakov and Gimelshein, arXiv:1805.02867) of 16 rows of a warp, of which a lane holds parts
// of two, `half` 0 and 1.
#pragma once
#include "kernels/cuda/sm80/step.h"
#include "kernels/cuda/sm80/tile.h"

namespace ringattn::cuda::sm80 {

// `sum` is over this lane's own columns.
struct SoftmaxRows {
  float maximum[2], sum[2];
};

// What is subtracted from scores before exp2. A row that has seen nothing but -inf has a maximum of -inf, and
// -inf - -inf would be NaN; against 0 exp2 gives the 0 that is wanted.
__device__ __forceinline__ float base_of(float maximum) { return maximum == -INFINITY ? 0 : maximum; }

// Products q k to weights, hidden ones to 0. `scale` is what sums of before are to be multiplied with.
// scores.factor is not negative, so the largest product is the largest score. NaN is not seen by fmaxf and
// goes its way through exp2 into the row's sum.
template <bool kMasked, int kCount>
__device__ __forceinline__ void soften(float (&s)[kCount][4], SoftmaxRows& rows, const Scores& scores,
                                       const Step::Seen (&seen)[2], float (&scale)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto hidden = [&](int n, int e) {
      return kMasked && !seen[half].has(8 * n + column_of_lane() + e);
    };
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (!hidden(n, e)) top = fmaxf(top, s[n][2 * half + e]);
    top = quad_maximum(top);
    const float before = rows.maximum[half];
    const float now = top == -INFINITY ? before : fmaxf(before, top * scores.factor);
    const float base = base_of(now);
    scale[half] = ptx::exp2_approx(scores.slope * (before - base));
    rows.maximum[half] = now;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kCount; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[n][2 * half + e];
        x = hidden(n, e) ? 0 : ptx::exp2_approx(scores.slope * fmaf(x, scores.factor, -base));
        sum += x;
      }
    rows.sum[half] = rows.sum[half] * scale[half] + sum;
  }
}

}  // namespace ringattn::cuda::sm80
