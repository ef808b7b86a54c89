// Backward, chapter 3 (Dao et al., arXiv:2205.14135, algorithm 4): backward_shape.h says who does what.
#pragma once
#include "kernels/cuda/sm90/backward_produce.h"
#include "kernels/cuda/sm90/place.h"
#include "kernels/cuda/sm90/query_sums.h"

namespace ringattn::cuda::sm90 {

// One consumer warpgroup: keys [64 consumer, 64 consumer + 64) of the group, and its columns of dq.
template <class T, class S>
struct BackwardConsumer {
  static constexpr int kSums = S::kDim / 2, kProducts = S::kColumns / 2, kSteps = S::kColumns / kDepth;
  using Numbers = NumbersOfTile<S::kColumns>;

  BackwardShared<S>& shared;
  const BackwardParams& a;
  int consumer;
  int tile = 0;
  float dk[kSums]{}, dv[kSums]{};
  float s[kProducts]{}, dp[kProducts]{};          // of the tile at hand, keys are rows
  std::uint32_t p[kSteps][4]{}, ds[kSteps][4]{};  // P^T and dS^T as left operands

  __device__ __forceinline__ int first_row() const { return consumer * kRowsWarpgroup; }
  // All keys of the group, as rows of the product that makes dq. In a register it would be one too many.
  __device__ __forceinline__ bool keys_finite() const {
    return ptx::load_shared(&shared.keys_finite[consumer]) != 0;
  }

  // d = rows columns^T of the first or the second tiles.
  __device__ __forceinline__ void issue_product(float (&d)[kProducts], int which) {
    const std::uint64_t rows = ptx::matrix_descriptor(
        ptx::shared_address(shared.rows[which]) + static_cast<std::uint32_t>(first_row() * kPanelRowBytes),
        16, kAtomBytes);
    const std::uint64_t columns =
        ptx::matrix_descriptor(ptx::shared_address(shared.columns[which][slot_of(tile)]), 16, kAtomBytes);
#pragma unroll
    for (int step = 0; step < S::kDim / kDepth; ++step) {
      const int panel = step / 4, bytes = step % 4 * kDepthBytes;
      ptx::wgmma_ss<T, ptx::Major::k, ptx::Major::k>(
          d, ptx::advance_descriptor(rows, static_cast<std::uint32_t>(panel * S::kPanelRowsBytes + bytes)),
          ptx::advance_descriptor(columns, static_cast<std::uint32_t>(panel * S::kPanelColumnsBytes + bytes)),
          step != 0);
    }
    ptx::wgmma_commit();
  }
  // sums += weights columns.
  __device__ __forceinline__ void issue_sums(float (&sums)[kSums], std::uint32_t (&weights)[kSteps][4],
                                             int which) {
    const std::uint64_t columns = ptx::matrix_descriptor(
        ptx::shared_address(shared.columns[which][slot_of(tile)]), S::kPanelColumnsBytes, kAtomBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_rs<T, ptx::Major::mn>(
          sums, weights[step],
          ptx::advance_descriptor(columns, static_cast<std::uint32_t>(step * kDepthRowsBytes)), true);
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void pin_sums(float (&sums)[kSums], std::uint32_t (&weights)[kSteps][4]) {
    ptx::pin(sums);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ptx::pin(weights[step]);
  }
  __device__ __forceinline__ void wait(int which) {
    ptx::mbarrier_wait(&shared.full[which][slot_of(tile)], phase_of(tile));
  }
  __device__ __forceinline__ void release(int which) {
    __syncwarp();  // all lanes are done with the tile
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.empty[which][slot_of(tile)]);
  }

  // dS of all keys of the group, for both warpgroups. With two buffers one barrier a tile is enough: who
  // comes to it has read what was there two tiles before.
  __device__ __forceinline__ int buffer() const { return tile & 1; }
  __device__ __forceinline__ void share_score_gradients() {
    store_score_gradients(shared.ds[buffer()], first_row(), ds);
    ptx::fence_proxy_async();
    ptx::named_barrier_sync(1 + S::kConsumers, S::kConsumers * kWarpgroup);
  }

  // The rest of a tile that every key of the warpgroup meets as a whole, and all is finite or need not be.
  // dP is at work. Each product is issued as soon as what it needs is there.
  __device__ __forceinline__ void attend_open(const Numbers& numbers) {
    const Span all[2]{};  // not asked
    to_probabilities<false>(s, numbers, all, a.scores);
    to_operand<T>(s, p);
    pin_sums(dv, p);
    ptx::wgmma_fence();
    issue_sums(dv, p, 1);
    ptx::wgmma_wait<1>();
    ptx::pin(dp);
    to_score_gradients<false>(dp, s, numbers, all);
    to_operand<T>(dp, ds);
    share_score_gradients();
    const QuerySums<S> sums{shared, consumer, buffer()};
    float dq[QuerySums<S>::kSums]{};
    ptx::pin(dq);
    pin_sums(dk, ds);
    ptx::wgmma_fence();
    sums.template issue<T>(dq);
    issue_sums(dk, ds, 0);
    ptx::wgmma_wait<2>();
    pin_sums(dv, p);
    release(1);
    ptx::wgmma_wait<1>();
    ptx::pin(dq);
    sums.hand_over(dq, tile);
    ptx::wgmma_wait<0>();
    pin_sums(dk, ds);
    release(0);
  }

  // The rest of any other tile, one thing after the other.
  template <class Dead>
  __device__ __forceinline__ void attend_part(const QueryTile& at, const Numbers& numbers, const Dead& dead) {
    const int row = first_row() + thread_row(ptx::thread_index()), slot = slot_of(tile);
    const Span seen[2] = {at.seen_by(row), at.seen_by(row + 8)};
    to_probabilities<true>(s, numbers, seen, a.scores);
    ptx::wgmma_wait<0>();
    ptx::pin(dp);
    to_score_gradients<true>(dp, s, numbers, seen);
    to_operand<T>(dp, ds);
    to_operand<T>(s, p);
    share_score_gradients();
    const bool q_finite = all_finite<T>(shared.columns[0][slot], shared.infinite[consumer], consumer);
    const bool dout_finite = all_finite<T>(shared.columns[1][slot], shared.infinite[consumer], consumer);
    if (q_finite && dout_finite) {
      pin_sums(dv, p);
      pin_sums(dk, ds);
      ptx::wgmma_fence();
      issue_sums(dv, p, 1);
      issue_sums(dk, ds, 0);
      ptx::wgmma_wait<0>();
      pin_sums(dv, p);
      pin_sums(dk, ds);
    } else {
      const auto visible = [&](int h, int column) { return seen[h].has(column) && !dead(column); };
      add_apart<T>(dv, p, shared.columns[1][slot], shared.finite[consumer], consumer, visible);
      add_apart<T>(dk, ds, shared.columns[0][slot], shared.finite[consumer], consumer, visible);
    }
    release(1);
    const QuerySums<S> sums{shared, consumer, buffer()};
    float dq[QuerySums<S>::kSums]{};
    if (keys_finite()) {
      ptx::pin(dq);
      ptx::wgmma_fence();
      sums.template issue<T>(dq);
      ptx::wgmma_wait<0>();
      ptx::pin(dq);
    } else {
      sums.template form_apart<T>(
          dq, [&](int query, int key) { return at.seen_by(key).has(query) && !dead(query); });
    }
    release(0);
    sums.hand_over(dq, tile);
  }

  // The next tile; false: there are no more.
  __device__ __forceinline__ bool attend() {
    const int slot = slot_of(tile);
    ptx::mbarrier_wait(&shared.told[slot], phase_of(tile));
    const QueryTile at = load_tile(&shared.tiles[slot]);
    if (at.query < 0) return false;
    const auto& numbers = shared.numbers[slot];
    const auto dead = [&numbers](int column) { return ptx::load_shared(&numbers[0][column]) == -INFINITY; };
    // The lanes of a warp see all columns, so that the four warps come to the same answer.
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool any_dead = __any_sync(~0u, dead(lane) || dead(lane + 32)) != 0;
    // Keys beyond the head's are nobody's in dk and dv, but not in dq: no piece has them, so they count as
    // hidden.
    const bool open =
        keys_finite() && !any_dead && at.all_visible(first_row(), first_row() + kRowsWarpgroup - 1);
    wait(0);
    ptx::pin(s);
    ptx::pin(dp);
    ptx::wgmma_fence();
    issue_product(s, 0);
    wait(1);
    ptx::wgmma_fence();
    issue_product(dp, 1);
    ptx::wgmma_wait<1>();
    ptx::pin(s);
    if (open) {
      attend_open(numbers);
    } else {
      attend_part(load_tile(&shared.tiles[slot]), numbers, dead);
    }
    ++tile;
    return true;
  }
};

template <class S>
__device__ __forceinline__ void init_barriers(BackwardShared<S>& shared) {
  ptx::mbarrier_init(&shared.rows_full, 1);
#pragma unroll
  for (int i = 0; i < 2 * kStages; ++i) {
    ptx::mbarrier_init(&shared.full[i / kStages][i % kStages], 1);
    ptx::mbarrier_init(&shared.empty[i / kStages][i % kStages], S::kWarps);
  }
#pragma unroll
  for (int i = 0; i < kStages; ++i) ptx::mbarrier_init(&shared.told[i], 1);
  ptx::mbarrier_init(&shared.dq_full, S::kWarps);
  ptx::mbarrier_init(&shared.dq_empty, 1);
  ptx::mbarrier_init_fence();
}

// What is next, for the whole block of threads.
template <class S>
__device__ __forceinline__ void take_work(BackwardShared<S>& shared, const BackwardArguments& x) {
  const int ticket = ptx::atomic_add_global(x.a.turns.ticket, 1);
  const Place place = place_of(ticket, x.a.walk.count, x.a.all_heads_kv, x.section);
  const Group group = ptx::load_global(x.a.walk.groups + place.group);
  ptx::store_shared(&shared.work.head, static_cast<int>(place.head));
  ptx::store_shared(&shared.work.group, static_cast<int>(place.group));
  ptx::store_shared(&shared.work.first_row, static_cast<int>(group.first_row));
  ptx::store_shared(&shared.work.first_piece, static_cast<int>(group.first_piece));
  ptx::store_shared(&shared.work.end_piece, static_cast<int>(group.first_piece + group.pieces));
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_kernel(const __grid_constant__ BackwardArguments x) {
  const BackwardParams& a = x.a;
  auto& shared = shared_memory<BackwardShared<S>>();
  if (threadIdx.x == 0) {
    init_barriers(shared);
    take_work(shared, x);
  }
  __syncthreads();

  const int warpgroup = static_cast<int>(threadIdx.x / kWarpgroup);
  if (warpgroup == 0) {
    ptx::registers_release<S::kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (threadIdx.x == 0) load_tiles(shared, x);
    if (warp == 1) tell_tiles(shared, a);
    if (warp == 2) add_query_sums(shared, a);
    return;
  }
  ptx::registers_claim<S::kConsumerRegisters>();
  const int consumer = warpgroup - 1;
  ptx::mbarrier_wait(&shared.rows_full, 0);
  const bool keys_finite = all_finite<T>(shared.rows[0], shared.infinite[consumer], consumer);
  if (threadIdx.x % kWarpgroup == 0) ptx::store_shared(&shared.keys_finite[consumer], keys_finite ? 1u : 0u);
  ptx::named_barrier_sync(1 + consumer, kWarpgroup);
  BackwardConsumer<T, S> me{.shared = shared, .a = a, .consumer = consumer};
  while (me.attend()) continue;
  const int head = ptx::load_shared(&shared.work.head);
  const index_t row =
      ptx::load_shared(&shared.work.first_row) + consumer * kRowsWarpgroup + thread_row(ptx::thread_index());
  add_rows(a.dk, head, row, a.k_rows, a.head_dim, me.dk);
  add_rows(a.dv, head, row, a.k_rows, a.dim_v, me.dv);
}

}  // namespace ringattn::cuda::sm90
