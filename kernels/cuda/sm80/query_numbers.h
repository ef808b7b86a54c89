// The numbers of queries that are columns, and the weights that come of them.
#pragma once
#include "kernels/cuda/sm80/backward.h"

namespace ringattn::cuda::sm80 {

// The columns' numbers in shared memory: all high, all low, all delta.
template <int kColumns>
struct SharedNumbers {
  static __device__ __forceinline__ void load(std::uint32_t to, const RowNumbers& from, index_t first,
                                              int valid) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float* const numbers = (i == 0 ? from.high : i == 1 ? from.low : from.delta) + first;
      const int c = static_cast<int>(threadIdx.x);
      if (c < kColumns)
        ptx::cp_async<4>(to + static_cast<std::uint32_t>(4 * (i * kColumns + c)),
                         numbers + (c < valid ? c : 0), c < valid ? 4 : 0);
    }
  }
  // Of columns `column`, which is even, and the next.
  static __device__ __forceinline__ void at(QueryNumbers (&query)[2], std::uint32_t numbers, int column) {
    const auto pair = [&](int i) {
      return ptx::load_shared<float2>(numbers + static_cast<std::uint32_t>(4 * (i * kColumns + column)));
    };
    const float2 high = pair(0), low = pair(1), delta = pair(2);
    query[0] = {.high = high.x, .low = low.x, .delta = delta.x};
    query[1] = {.high = high.y, .low = low.y, .delta = delta.y};
  }
};

// p from scores (in s), and ds from p and dp, in place. visible(half, column).
template <int kCount, class Visible>
__device__ __forceinline__ void to_weights(float (&s)[kCount][4], float (&dp)[kCount][4],
                                           const Scores& scores, std::uint32_t numbers,
                                           const Visible& visible) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
    QueryNumbers query[2];
    SharedNumbers<8 * kCount>::at(query, numbers, 8 * n + column_of_lane());
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const QueryNumbers& of = query[e % 2];
      const float p = probability(s[n][e], scores, of);
      const bool seen = !of.dead() && visible(e / 2, 8 * n + column_of_lane() + e % 2);
      s[n][e] = seen ? p : 0;
      dp[n][e] = seen ? p * (dp[n][e] - of.delta) : 0;
    }
  }
}

}  // namespace ringattn::cuda::sm80
