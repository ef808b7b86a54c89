// Forward, chapter 3: Dao, arXiv:2307.08691, algorithm 1, with the two products of neighbouring tiles in
// flight at once (Shah et al., arXiv:2407.08608, algorithm 2). shape.h says who does what.
#pragma once
#include "kernels/cuda/sm90/finite.h"
#include "kernels/cuda/sm90/place.h"
#include "kernels/cuda/sm90/produce.h"

namespace ringattn::cuda::sm90 {

// Maps: of q, k and v, see tensor_map.h.
struct AttendArguments {
  CUtensorMap q, k, v;
  AttendParams a;
  index_t packs, section;  // see place_of
};

// One consumer warpgroup: rows [64 consumer, 64 consumer + 64) of the block's (block_rows.h).
template <class T, class S>
struct Consumer {
  static constexpr int kScores = S::kKeys / 2, kSteps = S::kKeys / kDepth;

  Shared<S>& shared;
  const AttendParams& a;
  int consumer;
  Queries queries;  // of the group, that its rows are
  int tile = 0;     // number of the tile at hand
  RowState<S::kDv> state{};
  float s[kScores]{};            // scores, then weights, of the newest tile
  std::uint32_t p[kSteps][4]{};  // weights of the tile whose product with V is next or at work
  float shrink[2]{};             // what o has to be multiplied by before that product

  __device__ __forceinline__ int first_row() const { return consumer * kRowsWarpgroup; }
  __device__ __forceinline__ bool open(const KeyWalk<S::kKeys>& walk) const {
    return walk.all_visible(queries.first, queries.last);
  }
  // What row h of the thread's two sees. Formed where some of a tile is hidden, not carried through the loop.
  __device__ __forceinline__ Span seen_by_row(const KeyWalk<S::kKeys>& walk, int h) const {
    return walk.seen_by((first_row() + thread_row() + 8 * h) % a.group_rows);
  }

  // S = Q K^T of the tile at hand.
  __device__ __forceinline__ void issue_scores() {
    const std::uint64_t q = ptx::matrix_descriptor(
        ptx::shared_address(shared.q) + static_cast<std::uint32_t>(first_row() * kPanelRowBytes), 16,
        kAtomBytes);
    const std::uint64_t keys =
        ptx::matrix_descriptor(ptx::shared_address(shared.k[slot_of(tile)]), 16, kAtomBytes);
#pragma unroll
    for (int step = 0; step < S::kQk / kDepth; ++step) {
      const int panel = step / 4, bytes = step % 4 * kDepthBytes;
      ptx::wgmma_ss<T, ptx::Major::k, ptx::Major::k>(
          s, ptx::advance_descriptor(q, static_cast<std::uint32_t>(panel * S::kPanelQBytes + bytes)),
          ptx::advance_descriptor(keys, static_cast<std::uint32_t>(panel * S::kPanelBytes + bytes)),
          step != 0);
    }
    ptx::wgmma_commit();
  }
  // O += P V of tile `of`. Values have the summed index in rows; the next 64 of their columns are the next
  // panel.
  __device__ __forceinline__ void issue_output(int of) {
    const std::uint64_t values =
        ptx::matrix_descriptor(ptx::shared_address(shared.v[slot_of(of)]), S::kPanelBytes, kAtomBytes);
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      ptx::wgmma_rs<T, ptx::Major::mn>(
          state.o, p[step],
          ptx::advance_descriptor(values, static_cast<std::uint32_t>(step * kDepthRowsBytes)), true);
    ptx::wgmma_commit();
  }
  __device__ __forceinline__ void pin_output() {
    ptx::pin(state.o);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) ptx::pin(p[step]);
  }

  // wgmma_wait speaks for the warp that executes it, so each warp arrives for itself.
  __device__ __forceinline__ void release(std::uint64_t* empty) {
    __syncwarp();  // all lanes are done with the tile
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty);
  }
  __device__ __forceinline__ void wait_k() {
    ptx::mbarrier_wait(&shared.k_full[slot_of(tile)], phase_of(tile));
  }
  __device__ __forceinline__ void release_k() { release(&shared.k_empty[slot_of(tile)]); }
  __device__ __forceinline__ void wait_v(int of) {
    ptx::mbarrier_wait(&shared.v_full[slot_of(of)], phase_of(of));
  }
  __device__ __forceinline__ void release_v(int of) { release(&shared.v_empty[slot_of(of)]); }

  // Scores of the tile at hand, with nothing else at work.
  __device__ __forceinline__ void form_scores() {
    wait_k();
    ptx::pin(s);
    ptx::wgmma_fence();
    issue_scores();
    ptx::wgmma_wait<0>();
    ptx::pin(s);
    release_k();
  }
  // Its output likewise, which ends it.
  __device__ __forceinline__ void form_output() {
    rescale(state, shrink);
    wait_v(tile);
    pin_output();
    ptx::wgmma_fence();
    issue_output(tile);
    ptx::wgmma_wait<0>();
    pin_output();
    release_v(tile++);
  }

  // A tile that some of the rows see in part or not at all.
  __device__ __forceinline__ void attend_part(const KeyWalk<S::kKeys>& walk) {
    form_scores();
    const Span seen[2] = {seen_by_row(walk, 0), seen_by_row(walk, 1)};
    hide(s, seen);
    soften(s, state, shrink, a.scores);
    ptx::pin(s);  // as in the loop: all weights first, then operands
    to_operand<T>(s, p);
    wait_v(tile);
    const auto& values = shared.v[slot_of(tile)];
    if (all_finite<T>(values, shared.infinite[consumer], consumer)) {
      form_output();
    } else {
      rescale(state, shrink);
      add_apart<T>(state.o, p, values, shared.finite[consumer], consumer,
                   [&seen](int h, int key) { return seen[h].has(key); });
      release_v(tile++);
    }
  }

  // Tiles that all rows see, as many as follow one another. Scores of a tile and the output of the tile
  // before are at work together, and the weights are formed while the latter still is.
  __device__ __forceinline__ bool attend_open(KeyWalk<S::kKeys>& walk) {
    form_scores();
    soften(s, state, shrink, a.scores);
    ptx::pin(s);  // as in the loop: all weights first, then operands
    to_operand<T>(s, p);
    bool more = walk.next();
    bool next_open = more && open(walk);
    while (next_open) {
      ++tile;
      wait_k();
      ptx::pin(s);
      ptx::wgmma_fence();
      issue_scores();
      rescale(state, shrink);  // costs nothing here: the tensor cores are at work
      wait_v(tile - 1);
      pin_output();
      ptx::wgmma_fence();  // a second one, since there are branches in between
      issue_output(tile - 1);
      ptx::wgmma_wait<1>();  // scores are there, the output is at work
      ptx::pin(s);
      release_k();
      soften(s, state, shrink, a.scores);
      // The walk stands here on purpose: its branches end the basic block. Without them ptxas moves the wait
      // up in front of the exponentials, without a word, and nothing overlaps any more (tests/cubin).
      ptx::pin(s);
      more = walk.next();
      next_open = more && open(walk);
      ptx::wgmma_wait<0>();
      pin_output();
      release_v(tile - 1);
      to_operand<T>(s, p);
    }
    form_output();
    return more;
  }

  __device__ __forceinline__ void run(KeyWalk<S::kKeys> walk) {
    bool more = walk.next();
    while (more) {
      if (open(walk)) {
        more = attend_open(walk);
      } else {
        attend_part(walk);
        more = walk.next();
      }
    }
  }
};

template <class S>
__device__ __forceinline__ void init_barriers(Shared<S>& shared, int consumers) {
  const auto warps = static_cast<std::uint32_t>(consumers * 4);
  ptx::mbarrier_init(&shared.q_full, 1);
#pragma unroll
  for (int i = 0; i < kStages; ++i) {
    ptx::mbarrier_init(&shared.k_full[i], 1);
    ptx::mbarrier_init(&shared.v_full[i], 1);
    ptx::mbarrier_init(&shared.k_empty[i], warps);
    ptx::mbarrier_init(&shared.v_empty[i], warps);
  }
  ptx::mbarrier_init_fence();
}

// The queries of the block's rows, one box a panel. Where a pack has fewer heads than room, those after them
// come with it; what the box does not fill is left as it is. None of these rows is anybody's.
template <class S>
__device__ __forceinline__ void load_queries(Shared<S>& shared, const AttendArguments& x,
                                             const BlockRows& rows) {
  const int bytes = S::kPanelsQk * x.a.group_heads * x.a.group_rows * kPanelRowBytes;
  ptx::mbarrier_arrive_expect_tx(&shared.q_full, static_cast<std::uint32_t>(bytes));
  load_panels(shared.q, &x.q, &shared.q_full, static_cast<int>(rows.first), static_cast<int>(rows.head));
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) attend_kernel(const __grid_constant__ AttendArguments x) {
  const AttendParams& a = x.a;
  const Place place = place_of(static_cast<index_t>(blockIdx.x), a.walk.count, x.packs, x.section);
  const Group group = ptx::load_global(a.walk.groups + place.group);
  const BlockRows rows = block_rows_of(a, group, place.head);
  const int consumers = (rows.end() + kRowsWarpgroup - 1) / kRowsWarpgroup;  // that have any
  const KeyWalk<S::kKeys> walk(a.walk, group);
  auto& shared = shared_memory<Shared<S>>();
  if (threadIdx.x == 0) init_barriers(shared, consumers);
  __syncthreads();

  const int warpgroup = static_cast<int>(threadIdx.x / kWarpgroup);
  if (warpgroup == 0) {
    ptx::registers_release<S::kProducerRegisters>();
    if (threadIdx.x != 0) return;
    load_queries(shared, x, rows);
    Producer<S>{
        .shared = shared, .map_k = &x.k, .map_v = &x.v, .head = static_cast<int>(rows.head / a.heads_a_kv)}
        .run(walk);
    return;
  }
  if (warpgroup > consumers) return;
  ptx::registers_claim<S::kConsumerRegisters>();
  const int consumer = warpgroup - 1, first = consumer * kRowsWarpgroup;
  Consumer<T, S> me{
      .shared = shared, .a = a, .consumer = consumer, .queries = rows.queries(first, kRowsWarpgroup)};
  load_state(me.state, a, rows, first + thread_row());
  ptx::mbarrier_wait(&shared.q_full, 0);
  me.run(walk);
  // Formed anew rather than kept in registers.
  store_state<typename Wire<T>::type>(
      me.state, a, block_rows_of(a, ptx::load_global(a.walk.groups + place.group), place.head),
      first + thread_row());
}

}  // namespace ringattn::cuda::sm90
