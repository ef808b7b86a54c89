// Chapter 3: the softmax state of a consumer's rows. A thread of a warpgroup holds parts of two rows (index
// h), g = lane / 4 and g + 8 of its warp's 16: columns 8 j + 2 (lane % 4) and the next of each, as wgmma
// leaves its sums (ptx_wgmma.h). The four lanes of a row have all of it.
#pragma once
#include "kernels/cuda/block_rows.h"
#include "kernels/cuda/finished.h"
#include "kernels/cuda/sm90/walk.h"

namespace ringattn::cuda::sm90 {

__device__ __forceinline__ int quad_lane(int thread) { return thread % 4; }
__device__ __forceinline__ int quad_lane() { return quad_lane(static_cast<int>(threadIdx.x)); }
// The first of a thread's two rows among the 64 of its warpgroup.
__device__ __forceinline__ int thread_row(int thread) { return thread % 128 / 32 * 16 + thread % 32 / 4; }
__device__ __forceinline__ int thread_row() { return thread_row(static_cast<int>(threadIdx.x)); }

// From this thread's first column on, so that what is compared is known at compile time.
__device__ __forceinline__ Span from_own_column(const Span& span) {
  return {span.first - 2 * quad_lane(), span.last - 2 * quad_lane()};
}

// What memory holds of the element that wgmma names T.
template <class T>
struct Wire;
template <>
struct Wire<__nv_bfloat16> {
  using type = Bf16;
};
template <>
struct Wire<__half> {
  using type = F16;
};

// o = sum_j p_j v_j and l = sum_j p_j with p_j = 2^(slope (s_j factor - m)); l is that of this thread's
// columns and is added up over the four lanes at the end. m is the maximum of s_j factor, of all columns.
template <int kDv>
struct RowState {
  float o[kDv / 2];
  float m[2];
  float l[2];
};

// Of the thread whose first row is row t of the block's.
template <int kDv>
__device__ __forceinline__ void load_state(RowState<kDv>& state, const AttendParams& a, const BlockRows& rows,
                                           int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const index_t at = rows.state_at(t + 8 * h, a.o.rows);
    const bool there = at >= 0;
    state.m[h] = there ? ptx::load_global(a.maximum + at) : -INFINITY;
    state.l[h] = there && quad_lane() == 0 ? ptx::load_global(a.sum + at) : 0;
    const float* const o = static_cast<const float*>(a.o.data) + at * a.o.stride;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      const int e = 8 * j + 2 * quad_lane();
      float2 pair{0, 0};
      if (there && e < a.o.stride) pair = ptx::load_global(reinterpret_cast<const float2*>(o + e));
      state.o[4 * j + 2 * h] = pair.x;
      state.o[4 * j + 2 * h + 1] = pair.y;
    }
  }
}

// To the state, or as the answer, if these were the last keys.
template <class T, int kDv>
__device__ __forceinline__ void store_state(const RowState<kDv>& state, const AttendParams& a,
                                            const BlockRows& rows, int t) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = state.l[h];
    sum += ptx::shuffle_xor(sum, 1);
    sum += ptx::shuffle_xor(sum, 2);
    const index_t at = rows.state_at(t + 8 * h, a.o.rows);
    if (at < 0) continue;
    if (a.end.out.data) {
      const index_t head = rows.head_at(t + 8 * h), query = rows.query_at(t + 8 * h);
      T* const out = out_row<T>(a.end, head, query);
#pragma unroll
      for (int j = 0; j < kDv / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (const int e = 8 * j + 2 * quad_lane() + i; e < a.dim_v)
            ptx::store_global(out + e, finished<T>(state.o[4 * j + 2 * h + i], sum));
      if (quad_lane() == 0) store_lse(a.end, head, query, state.m[h], sum, a.scores.slope);
      continue;
    }
    if (quad_lane() == 0) {
      ptx::store_global(a.maximum + at, state.m[h]);
      ptx::store_global(a.sum + at, sum);
    }
    float* const o = static_cast<float*>(a.o.data) + at * a.o.stride;
#pragma unroll
    for (int j = 0; j < kDv / 8; ++j) {
      const int e = 8 * j + 2 * quad_lane();
      if (e < a.o.stride)
        ptx::store_global(reinterpret_cast<float2*>(o + e),
                          float2{state.o[4 * j + 2 * h], state.o[4 * j + 2 * h + 1]});
    }
  }
}

// Hidden scores become -inf, so that what hidden keys hold is dropped.
template <int kScores>
__device__ __forceinline__ void hide(float (&s)[kScores], const Span (&seen)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Span span = from_own_column(seen[h]);
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (!span.has(8 * j + e)) s[4 * j + 2 * h + e] = -INFINITY;
  }
}

// Scores become weights and are added to l. shrink[h] is what all sums under the old maximum have to be
// multiplied by: l has been, o has not, since a product may still be writing it. fmaxf does not see NaN,
// which goes its way through exp2 into the row's l and o.
template <int kDv, int kScores>
__device__ __forceinline__ void soften(float (&s)[kScores], RowState<kDv>& state, float (&shrink)[2],
                                       const Scores& scores) {
  // Where the factor is below all fp32, the scores are too small to matter, but 0 * -inf is NaN.
  const float factor = fmaxf(scores.factor, 0x1p-149f);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = s[2 * h];
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
    top = fmaxf(top, ptx::shuffle_xor(top, 1));
    top = fmaxf(top, ptx::shuffle_xor(top, 2));
    const float now = fmaxf(state.m[h], top * factor);
    // A row that has seen nothing but -inf: taken from 0 instead, its weights are 2^-inf = 0, not NaN.
    const float base = now == -INFINITY ? 0 : now;
    shrink[h] = ptx::exp2_approx(scores.slope * (state.m[h] - base));
    state.m[h] = now;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kScores / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * j + 2 * h + e];
        // The difference first: of scores of 10^11 one multiply-add alone leaves 10^4 at the maximum (case
        // A40). The second instruction is not felt beside the exponential.
        x = ptx::exp2_approx(scores.slope * fmaf(x, factor, -base));
        sum += x;
      }
    state.l[h] = state.l[h] * shrink[h] + sum;
  }
}

template <int kDv>
__device__ __forceinline__ void rescale(RowState<kDv>& state, const float (&shrink)[2]) {
#pragma unroll
  for (int i = 0; i < kDv / 2; ++i) state.o[i] *= shrink[i / 2 % 2];
}

// Weights as the left operand of the next product: two neighbouring groups of four sums are the fragment of
// 16 columns.
template <class T, int kScores>
__device__ __forceinline__ void to_operand(const float (&s)[kScores], std::uint32_t (&p)[kScores / 8][4]) {
#pragma unroll
  for (int step = 0; step < kScores / 8; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[step][i] = ptx::pack<T>(s[8 * step + 2 * i], s[8 * step + 2 * i + 1]);
}

}  // namespace ringattn::cuda::sm90
