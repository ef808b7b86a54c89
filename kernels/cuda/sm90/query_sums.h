// Chapter 3, backward: a tile's part of dq, from dS in registers to memory.
#pragma once
#include "kernels/cuda/sm90/backward_shape.h"
#include "kernels/cuda/sm90/finite.h"
#include "kernels/cuda/sm90/query_walk.h"

namespace ringattn::cuda::sm90 {

// dS^T of a warpgroup's keys, from `first_row` on, as rows of 64 queries in the swizzle of 128 bytes.
template <int kBytes, int kSteps>
__device__ __forceinline__ void store_score_gradients(std::uint8_t (&to)[kBytes], int first_row,
                                                      const std::uint32_t (&ds)[kSteps][4]) {
  // Lane l names row l % 8 of the 8x8 matrix l / 8. Of those, odd ones are the warp's 8 later keys and the
  // last two the 8 later queries, as operands lie in registers.
  const int thread = ptx::thread_index(), lane = thread % 32;
  const int warp_row = thread % kWarpgroup / 32 * 16;
  const int row = first_row + warp_row + lane / 8 % 2 * 8 + lane % 8;
  const std::uint32_t at = ptx::shared_address(to) + static_cast<std::uint32_t>(row * kPanelRowBytes);
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
    ptx::stmatrix_x4(at + static_cast<std::uint32_t>(((2 * step + lane / 16) ^ lane % 8) * 16), ds[step]);
}

// dS of a tile from shared memory times keys: rows are queries. Columns [first_column, first_column + 2
// kSums) of dq.
template <class S>
struct QuerySums {
  BackwardShared<S>& shared;
  int consumer, buffer;  // of ds

  static constexpr int kSums = S::kDqColumns / 2, kSteps = S::kRows / kDepth;

  // Where its columns begin: in which panel of keys, and in which of the 8 chunks of that panel's rows.
  __device__ __forceinline__ int first_column() const { return consumer * S::kDqColumns; }
  __device__ __forceinline__ int panel() const { return S::kPanels == 1 ? 0 : consumer; }
  __device__ __forceinline__ int first_chunk() const {
    return S::kPanels == 1 ? consumer * (S::kDqColumns / 8) : 0;
  }
  static_assert(S::kPanels <= 2);

  __device__ __forceinline__ std::uint64_t left_operand() const {
    return ptx::matrix_descriptor(ptx::shared_address(shared.ds[buffer]), 16, kAtomBytes);
  }
  template <int kBytes>
  __device__ __forceinline__ std::uint64_t right_operand(
      const std::uint8_t (&tile)[S::kPanels][kBytes]) const {
    return ptx::matrix_descriptor(
        ptx::shared_address(tile[panel()]) + static_cast<std::uint32_t>(first_chunk() * 16), kBytes,
        kAtomBytes);
  }

  template <class T>
  __device__ __forceinline__ void issue(float (&dq)[kSums]) const {
    const std::uint64_t ds = left_operand(), keys = right_operand(shared.rows[0]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      constexpr std::uint32_t kBytes = kDepthRowsBytes;
      ptx::wgmma_ss<T, ptx::Major::mn, ptx::Major::mn>(
          dq, ptx::advance_descriptor(ds, static_cast<std::uint32_t>(step) * kBytes),
          ptx::advance_descriptor(keys, static_cast<std::uint32_t>(step) * kBytes), step != 0);
    }
    ptx::wgmma_commit();
  }

  // The same where some key is not finite: see finite.h. `visible(query, key)` of the tile and the group.
  template <class T, class Visible>
  __device__ __forceinline__ void form_apart(float (&dq)[kSums], const Visible& visible) const {
    auto& copy = shared.finite[consumer];
    const std::uint64_t ds = left_operand(), keys = right_operand(copy);
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      copy_finite<T>(shared.rows[0], step, copy);
      ptx::fence_proxy_async();
      ptx::named_barrier_sync(1 + consumer, kWarpgroup);
      ptx::pin(dq);
      ptx::wgmma_fence();
      ptx::wgmma_ss<T, ptx::Major::mn, ptx::Major::mn>(
          dq, ptx::advance_descriptor(ds, static_cast<std::uint32_t>(step * kDepthRowsBytes)), keys,
          step != 0);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::pin(dq);
#pragma unroll 1
      for (int key = step * kDepth; key < (step + 1) * kDepth; ++key) {
        const int query = thread_row(ptx::thread_index());
        const bool sees[2] = {visible(query, key), visible(query + 8, key)};
        const float w[2] = {weight<T>(query, key), weight<T>(query + 8, key)};
        add_infinite<T, S::kPanelRowsBytes>(dq, ptx::shared_address(shared.rows[0][panel()]), first_chunk(),
                                            key, w, sees);
      }
      ptx::named_barrier_sync(1 + consumer, kWarpgroup);  // the copy has been read
    }
  }
  template <class T>
  __device__ __forceinline__ float weight(int query, int key) const {
    const int chunk = query / 8 ^ key % 8;
    return widen_half(ptx::load_shared<std::uint16_t>(
                          ptx::shared_address(shared.ds[buffer]) +
                          static_cast<std::uint32_t>(key * kPanelRowBytes + chunk * 16 + query % 8 * 2)),
                      static_cast<T*>(nullptr));
  }

  // To the place from where add_query_sums takes them; `tile` counts those of the block of threads.
  __device__ __forceinline__ void hand_over(const float (&dq)[kSums], int tile) const {
    ptx::mbarrier_wait(&shared.dq_empty, static_cast<std::uint32_t>(tile) % 2 ^ 1);
    const int thread = ptx::thread_index();
    float* const to = &shared.dq[thread_row(thread)][first_column() + 2 * quad_lane(thread)];
#pragma unroll
    for (int j = 0; j < kSums / 4; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        ptx::store_shared(reinterpret_cast<float2*>(to + 8 * h * S::kDqStride + 8 * j),
                          float2{dq[4 * j + 2 * h], dq[4 * j + 2 * h + 1]});
    ptx::fence_proxy_async();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.dq_full);
  }
};

// Adds one tile's part, of queries [query, query + kTurnRows) as far as the run has them.
template <class S>
__device__ __forceinline__ void add_in_turn(BackwardShared<S>& shared, const BackwardParams& a, int head,
                                            int query, const TurnRun& run, int tile) {
  int* const done = a.turns.done + head * a.turns.blocks + query / kTurnRows;
  const int lane = ptx::thread_index() % 32;
  ptx::mbarrier_wait(&shared.dq_full, static_cast<std::uint32_t>(tile) % 2);
  if (lane == 0) ptx::wait_global(done, run.turn);
  __syncwarp();
  ptx::fence_proxy_async_global();
  const auto stride = static_cast<int>(a.dq.stride);
  float* const rows = static_cast<float*>(a.dq.data) + (head * a.dq.rows + query) * stride;
#pragma unroll
  for (int row = lane; row < kTurnRows; row += 32)
    if (run.begin <= query + row && query + row < run.end)
      ptx::bulk_reduce_add(rows + row * stride, shared.dq[row],
                           static_cast<std::uint32_t>(stride) * std::uint32_t{sizeof(float)});
  ptx::bulk_commit();
  ptx::bulk_wait_read<0>();
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(&shared.dq_empty);
  ptx::bulk_wait<0>();
  __syncwarp();
  if (lane == 0) {
    ptx::fence_global();
    ptx::atomic_add_global(done, 1);
  }
}

// What a warp does all along: adds the tiles' parts to dq in memory, each when its turn has come. Rows that
// the piece does not have are left alone.
template <class S>
__device__ __forceinline__ void add_query_sums(BackwardShared<S>& shared, const BackwardParams& a) {
  // Limits are read anew, since registers are few.
  int tile = 0;
#pragma unroll 1
  for (int head = first_query_head(a, shared.work); head < end_query_head(a, shared.work); ++head) {
    const auto first_run = [&](int after) {
      return ptx::load_global(a.turns.first_runs + ptx::load_shared(&shared.work.group) + after);
    };
#pragma unroll 1
    for (int i = first_run(0); i < first_run(1); ++i) {
      const TurnRun* const at = a.turns.runs + i;
      const TurnRun run{ptx::load_global(&at->begin), ptx::load_global(&at->end),
                        ptx::load_global(&at->turn)};
#pragma unroll 1
      for (int query = (run.end - 1) / kTurnRows * kTurnRows; query + kTurnRows > run.begin;
           query -= kTurnRows, ++tile)
        add_in_turn(shared, a, head, query, run, tile);
    }
  }
}

}  // namespace ringattn::cuda::sm90
