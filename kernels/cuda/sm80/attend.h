// Chapter 2, forward: FlashAttention-2 (Dao, arXiv:2307.08691, algorithm 1) with cp.async, ldmatrix and
// mma.sync. A block of threads: 128 rows (64 where head_dim_v is above 128), a warp 32 of them, so that each
// operand that is read from shared memory serves two products. 64 keys at a time (32 where head_dim_v is
// above 96: sums and scores share 255 registers), in two buffers: while one is worked on, the other is
// copied.
#pragma once
#include "kernels/cuda/finished.h"
#include "kernels/cuda/sm80/block_rows.h"
#include "kernels/cuda/sm80/nonfinite.h"
#include "kernels/cuda/sm80/softmax.h"

namespace ringattn::cuda::sm80 {

constexpr int attend_parts(int dim_v) { return dim_v > 128 ? 1 : 2; }  // of 16 rows, of a warp
constexpr int attend_rows(int dim_v) { return attend_parts(dim_v) * 16 * kWarps; }

template <int kDim, int kDimV>
struct AttendTiles {
  static constexpr int kParts = attend_parts(kDimV), kWarpRows = 16 * kParts, kRows = attend_rows(kDimV);
  static constexpr int kColumns = kDimV > 96 ? 32 : 64;
  using Q = SharedTile<kRows, kDim>;
  using K = SharedTile<kColumns, kDim>;
  using V = SharedTile<kColumns, kDimV>;
  static constexpr bool kQueriesStay = kDim <= 64;  // in registers
  // Offsets in bytes; K, V and flags within a buffer.
  static constexpr int kValues = K::kBytes, kFlags = kValues + V::kBytes, kBuffer = kFlags + 4 * kWarps;
  static constexpr int kTotal = Q::kBytes + 2 * kBuffer;
};

// s = q k^T of a warp's rows.
template <class T, class Tiles>
__device__ __forceinline__ void multiply_keys(float (&s)[Tiles::kParts][Tiles::kColumns / 8][4],
                                              std::uint32_t q, std::uint32_t keys, int row0,
                                              const Fragment* staying) {
  constexpr int kSteps = Tiles::K::kChunks / 2;
#pragma unroll
  for (auto& part : s) clear(part);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    Fragment rows[Tiles::kParts];
#pragma unroll
    for (int m = 0; m < Tiles::kParts; ++m) {
      if constexpr (Tiles::kQueriesStay) {
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[m][i] = staying[m * kSteps + k][i];
      } else {
        Tiles::Q::a(rows[m], q, row0 + 16 * m, k);
      }
    }
#pragma unroll
    for (int n = 0; n < Tiles::kColumns / 16; ++n) {
      Fragment b;
      Tiles::K::b_transposed(b, keys, n, k);
#pragma unroll
      for (int m = 0; m < Tiles::kParts; ++m) {
        ptx::mma_m16n8k16<typename Native<T>::type>(s[m][2 * n], rows[m], b[0], b[1]);
        ptx::mma_m16n8k16<typename Native<T>::type>(s[m][2 * n + 1], rows[m], b[2], b[3]);
      }
    }
  }
}

// Products to weights, and o to the new maximum.
template <bool kMasked, int kCount, int kChunks>
__device__ __forceinline__ void soften_part(float (&s)[kCount][4], float (&o)[kChunks][4],
                                            SoftmaxRows& softmax, const AttendParams& a, const Step& step,
                                            int row0) {
  const Step::Seen seen[2] = {seen_by(a, step, row0, 0), seen_by(a, step, row0, 1)};
  float scale[2];
  soften<kMasked>(s, softmax, a.scores, seen, scale);
  // Most steps find no new maximum.
  if (!__any_sync(~0u, scale[0] != 1 || scale[1] != 1)) return;
#pragma unroll
  for (int n = 0; n < kChunks; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) o[n][e] *= scale[e / 2];
}

// o += weights v. The weights are rounded to the operands' type, as any product of that type has them; the
// row sums are not, so that lse is as good as fp32 makes it.
template <class T, class Tiles>
__device__ __forceinline__ void add_values(float (&o)[Tiles::kParts][Tiles::V::kChunks][4],
                                           const float (&s)[Tiles::kParts][Tiles::kColumns / 8][4],
                                           std::uint32_t values) {
#pragma unroll
  for (int k = 0; k < Tiles::kColumns / 16; ++k) {
    Fragment weights[Tiles::kParts];
#pragma unroll
    for (int m = 0; m < Tiles::kParts; ++m) to_operand<T>(weights[m], s[m][2 * k], s[m][2 * k + 1]);
#pragma unroll
    for (int n = 0; n < Tiles::V::kChunks / 2; ++n) {
      Fragment b;
      Tiles::V::b(b, values, n, k);
#pragma unroll
      for (int m = 0; m < Tiles::kParts; ++m) {
        ptx::mma_m16n8k16<typename Native<T>::type>(o[m][2 * n], weights[m], b[0], b[1]);
        ptx::mma_m16n8k16<typename Native<T>::type>(o[m][2 * n + 1], weights[m], b[2], b[3]);
      }
    }
  }
}

// Adds what a block has summed to the state, which begins where earlier blocks of keys have left it, or makes
// the answer of both.
template <class T, int kChunks>
__device__ __forceinline__ void add_to_state(const AttendParams& a, const BlockRows& rows, int row0,
                                             const float (&o)[kChunks][4], const SoftmaxRows& softmax) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(softmax.sum[half]);  // before the branch: all lanes take part
    const index_t row = rows.state_at(row0 + row_of_lane(half), a.o.rows);
    const float before = row < 0 ? 0 : ptx::load_global(a.maximum + row);
    const float sum_before = row < 0 ? 0 : ptx::load_global(a.sum + row);
    __syncwarp();  // every lane has read them
    if (row < 0) continue;
    const float scale = exp2f(a.scores.slope * (before - base_of(softmax.maximum[half])));
    const float sum_now = sum_before * scale + sum;
    float* const to = static_cast<float*>(a.o.data) + row * a.o.stride;
    const index_t head = rows.head_at(row0 + row_of_lane(half)),
                  query = rows.query_at(row0 + row_of_lane(half));
    T* const out = a.end.out.data ? out_row<T>(a.end, head, query) : nullptr;
#pragma unroll
    for (int n = 0; n < kChunks; ++n) {
      const int e = 8 * n + column_of_lane();
      if (e >= a.o.stride) break;  // a multiple of 4
      auto* const pair = reinterpret_cast<float2*>(to + e);
      const float2 x = ptx::load_global(pair);
      const float2 now = make_float2(x.x * scale + o[n][2 * half], x.y * scale + o[n][2 * half + 1]);
      if (!out) {
        ptx::store_global(pair, now);
        continue;
      }
      if (e < a.dim_v) ptx::store_global(out + e, finished<T>(now.x, sum_now));
      if (e + 1 < a.dim_v) ptx::store_global(out + e + 1, finished<T>(now.y, sum_now));
    }
    if (lane_index() % 4 != 0) continue;
    if (out) {
      store_lse(a.end, head, query, softmax.maximum[half], sum_now, a.scores.slope);
      continue;
    }
    ptx::store_global(a.maximum + row, softmax.maximum[half]);
    ptx::store_global(a.sum + row, sum_now);
  }
}

// Starts copying the queries; the sums of this block are formed apart from what is carried (params.h says
// why) and begin with 0, the maximum begins where it is.
template <class T, class Tiles>
__device__ __forceinline__ void begin_rows(const AttendParams& a, std::uint32_t q, int row0,
                                           float (&o)[Tiles::kParts][Tiles::V::kChunks][4],
                                           SoftmaxRows (&softmax)[Tiles::kParts]) {
  const BlockRows rows = block_rows(a);
  Tiles::Q::load(q, a.q.stride, a.q.data, [&](int t) -> const void* {
    const index_t row = rows.at(t, a.q.rows);
    return row < 0 ? nullptr : row_at<const T>(a.q, 0, row);
  });
#pragma unroll
  for (int m = 0; m < Tiles::kParts; ++m) {
    clear(o[m]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const index_t row = rows.state_at(row0 + 16 * m + row_of_lane(half), a.o.rows);
      softmax[m].maximum[half] = row < 0 ? -INFINITY : ptx::load_global(a.maximum + row);
      softmax[m].sum[half] = 0;
    }
  }
}

// What nonfinite.h says, for the values of a step of which something is hidden. All warps take part, those
// that see nothing of it as well (`needed`).
template <class T, class Tiles>
__device__ __forceinline__ void set_nonfinite_apart(const AttendParams& a, const Step& step,
                                                    std::uint32_t values, int row0, bool needed,
                                                    const float (&s)[Tiles::kParts][Tiles::kColumns / 8][4],
                                                    float (&o)[Tiles::kParts][Tiles::V::kChunks][4]) {
  if (needed) {
#pragma unroll
    for (int m = 0; m < Tiles::kParts; ++m)
      add_nonfinite<T, typename Tiles::V, Tiles::kColumns>(
          o[m], values, weighted_pairs<T>(s[m], [&](int half, int column) {
            return seen_by(a, step, row0 + 16 * m, half).has(column);
          }));
  }
  __syncthreads();  // all have read them
  erase_nonfinite<T, typename Tiles::V>(values);
  __syncthreads();
}

template <class T, int kDim, int kDimV>
__global__ void __launch_bounds__(kThreads) attend_kernel(AttendParams a) {
  using Tiles = AttendTiles<kDim, kDimV>;
  constexpr int kParts = Tiles::kParts, kColumns = Tiles::kColumns;
  const std::uint32_t q = ptx::shared_address(ptx::dynamic_shared());
  std::uint32_t buffer = q + Tiles::Q::kBytes, other = buffer + Tiles::kBuffer;
  const int row0 = warp_index() * Tiles::kWarpRows;
  const index_t head_kv = block_rows(a).head / a.heads_a_kv;
  const auto load = [&](std::uint32_t to, const Step& step) {
    Tiles::K::load(to, a.k, head_kv, step.first, step.columns);
    Tiles::V::load(to + Tiles::kValues, a.v, head_kv, step.first, step.columns);
    ptx::cp_async_commit();
  };

  SoftmaxRows softmax[kParts];
  float o[kParts][Tiles::V::kChunks][4];
  auto place = first_place<kColumns>(a.walk, block_group(a));
  begin_rows<T, Tiles>(a, q, row0, o, softmax);
  load(buffer, place.step(a.walk));
  Fragment staying[Tiles::kQueriesStay ? kParts * (kDim / 16) : 1];
  if constexpr (Tiles::kQueriesStay) {
    ptx::cp_async_wait<0>();
    __syncthreads();  // the queries are there
#pragma unroll
    for (int i = 0; i < kParts * (kDim / 16); ++i)
      Tiles::Q::a(staying[i], q, row0 + i / (kDim / 16) * 16, i % (kDim / 16));
  }

  while (place.left()) {
    const Step step = place.step(a.walk);
    const std::uint32_t values = buffer + Tiles::kValues, flags = buffer + Tiles::kFlags;
    // Whether nothing of it need be masked; whether this warp sees anything of it.
    const bool all = step.all_visible(0, block_rows(a).valid, kColumns);
    const bool needed = all || warp_sees(a, step, row0, Tiles::kWarpRows);
    ptx::cp_async_wait<0>();
    if (!all) set_flag(flags, own_nonfinite<T, typename Tiles::V>(values));
    __syncthreads();  // the buffer is there, for all, and the other one has been read
    const auto next = place.next(a.walk);
    if (next.left()) load(other, next.step(a.walk));

    float s[kParts][kColumns / 8][4];
    if (needed) multiply_keys<T, Tiles>(s, q, buffer, row0, staying);
    if (all) {
#pragma unroll
      for (int m = 0; m < kParts; ++m) soften_part<false>(s[m], o[m], softmax[m], a, step, row0 + 16 * m);
    } else {
      if (needed) {
#pragma unroll
        for (int m = 0; m < kParts; ++m) soften_part<true>(s[m], o[m], softmax[m], a, step, row0 + 16 * m);
      }
      if (any_flag(flags)) set_nonfinite_apart<T, Tiles>(a, step, values, row0, needed, s, o);
    }
    if (needed) add_values<T, Tiles>(o, s, values);
    place = next;
    exchange(buffer, other);
  }
  const BlockRows rows = block_rows(a);
#pragma unroll
  for (int m = 0; m < kParts; ++m) add_to_state<T>(a, rows, row0 + 16 * m, o[m], softmax[m]);
}

}  // namespace ringattn::cuda::sm80
