// Backward, chapter 3 (Dao et al., arXiv:2205.14135, algorithm 4): backward_shape.h says who does what.
#pragma once
#include "kernels/cuda/sm90/finite.h"
#include "kernels/cuda/sm90/place.h"
#include "kernels/cuda/sm90/produce.h"
#include "kernels/cuda/sm90/weights.h"

namespace ringattn::cuda::sm90 {

// What stays in a block of threads: rows of queries or of keys.
enum class Outer : int { queries, keys };

// Maps: of what stays, q and dout or k and v, in boxes of kRows rows; of what comes by in boxes of kColumns.
struct BackwardArguments {
  CUtensorMap rows[2], columns[2];
  BackwardParams a;
  index_t section;  // see place_of
};

// Where a block of threads works: heads of what stays, and those of what comes by.
template <Outer kOuter>
struct Heads {
  index_t outer, first, count;
  __device__ __forceinline__ Heads(const BackwardParams& a, index_t head)
      : outer(head),
        first(kOuter == Outer::queries ? head / a.heads_a_kv : head * a.heads_a_kv),
        count(kOuter == Outer::queries ? 1 : a.heads_a_kv) {}
};

template <Outer kOuter, class S>
__device__ __forceinline__ void produce(BackwardShared<S>& shared, const BackwardArguments& x,
                                        const Heads<kOuter>& heads, const Group& group) {
  ptx::mbarrier_arrive_expect_tx(&shared.rows_full, 2 * S::kPanels * S::kPanelRowsBytes);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    load_panels(shared.rows[i], &x.rows[i], &shared.rows_full, static_cast<int>(group.first_row),
                static_cast<int>(heads.outer));
  int tile = 0;
  for (index_t head = heads.first; head < heads.first + heads.count; ++head) {
    KeyWalk<S::kColumns> walk(x.a.walk, group);
    for (; walk.next(); ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int slot = slot_of(tile);
        ptx::mbarrier_wait(&shared.empty[i][slot], phase_of(tile) ^ 1);
        load_tile(shared.columns[i][slot], &x.columns[i], &shared.full[i][slot], walk.key,
                  static_cast<int>(head));
      }
    }
  }
}

// One consumer warpgroup: rows [64 consumer, 64 consumer + 64) of the group.
template <class T, Outer kOuter, class S>
struct BackwardConsumer {
  static constexpr int kSums = S::kDim / 2, kProducts = S::kColumns / 2, kSteps = S::kColumns / kDepth;

  BackwardShared<S>& shared;
  const BackwardParams& a;
  int consumer;
  int last_row;       // of the warpgroup, counted in the group; rows beyond the head's are nobody's
  NumbersOfRows own;  // Outer::queries
  int tile = 0;
  float first[kSums]{};                               // dq or dk
  float second[kOuter == Outer::keys ? kSums : 1]{};  // dv
  float s[kProducts]{}, dp[kProducts]{};
  std::uint32_t p[kSteps][4]{}, ds[kSteps][4]{};  // the same as left operands

  __device__ __forceinline__ int first_row() const { return consumer * kRowsWarpgroup; }

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
  }
  __device__ __forceinline__ void pin_sums() {
    ptx::pin(first);
    if constexpr (kOuter == Outer::keys) ptx::pin(second);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      ptx::pin(ds[step]);
      if constexpr (kOuter == Outer::keys) ptx::pin(p[step]);
    }
  }
  __device__ __forceinline__ void wait(int which) {
    ptx::mbarrier_wait(&shared.full[which][slot_of(tile)], phase_of(tile));
  }

  // P and dS of the tile at hand. dP is at work while P is formed.
  template <bool kMasked, class Numbers>
  __device__ __forceinline__ void form_weights(const Numbers& numbers, const Span (&seen)[2]) {
    to_probabilities<kMasked>(s, numbers, seen, a.scores);
    if constexpr (kOuter == Outer::keys) to_operand<T>(s, p);
    ptx::wgmma_wait<0>();
    ptx::pin(dp);
    to_score_gradients<kMasked>(dp, s, numbers, seen);
    to_operand<T>(dp, ds);
  }

  // Products with values that are all finite, or need not be.
  __device__ __forceinline__ void add() {
    pin_sums();
    ptx::wgmma_fence();
    if constexpr (kOuter == Outer::keys) issue_sums(second, p, 1);
    issue_sums(first, ds, 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    pin_sums();
  }

  // The numbers of the tile's queries, where they are columns, for the whole warpgroup.
  __device__ __forceinline__ auto& share_numbers(index_t head, index_t first_query) {
    auto& numbers = shared.numbers[consumer][tile % 2];
    const int thread = static_cast<int>(threadIdx.x % kWarpgroup);
    if (thread < S::kColumns) {
      const QueryNumbers query = query_numbers(a, head, first_query + thread);
      ptx::store_shared(&numbers[0][thread], query.high);
      ptx::store_shared(&numbers[1][thread], query.low);
      ptx::store_shared(&numbers[2][thread], query.delta);
    }
    // Those of the tile before the last have been read by all who have come here.
    ptx::named_barrier_sync(1 + consumer, kWarpgroup);
    return numbers;
  }

  template <class Numbers, class Dead>
  __device__ __forceinline__ void attend(const KeyWalk<S::kColumns>& walk, const Numbers& numbers,
                                         bool any_dead, const Dead& dead) {
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
    const int row = first_row() + thread_row();
    const Span seen[2] = {walk.seen_by(row), walk.seen_by(row + 8)};
    if (!any_dead && walk.all_visible(first_row(), last_row)) {
      form_weights<false>(numbers, seen);
      add();
    } else {
      form_weights<true>(numbers, seen);
      const auto visible = [&](int h, int column) { return seen[h].has(column) && !dead(h, column); };
      const int slot = slot_of(tile);
      bool finite = all_finite<T>(shared.columns[0][slot], shared.infinite[consumer], consumer);
      if constexpr (kOuter == Outer::keys)
        finite = all_finite<T>(shared.columns[1][slot], shared.infinite[consumer], consumer) && finite;
      if (finite) {
        add();
      } else {
        if constexpr (kOuter == Outer::keys)
          add_apart<T>(second, p, shared.columns[1][slot], shared.finite[consumer], consumer, visible);
        add_apart<T>(first, ds, shared.columns[0][slot], shared.finite[consumer], consumer, visible);
      }
    }
    __syncwarp();  // all lanes are done with the tiles
    if (threadIdx.x % 32 == 0) {
      ptx::mbarrier_arrive(&shared.empty[0][slot_of(tile)]);
      ptx::mbarrier_arrive(&shared.empty[1][slot_of(tile)]);
    }
    ++tile;
  }

  __device__ __forceinline__ void run(const Heads<kOuter>& heads, const Group& group) {
    for (index_t head = heads.first; head < heads.first + heads.count; ++head) {
      KeyWalk<S::kColumns> walk(a.walk, group);
      while (walk.next()) {
        if constexpr (kOuter == Outer::queries) {
          const auto dead = [this](int h, int) { return own.of[h].dead(); };
          attend(walk, own, any_dead, dead);
        } else {
          const auto& numbers = share_numbers(head, walk.key);
          const auto dead = [&numbers](int, int column) {
            return ptx::load_shared(&numbers[0][column]) == -INFINITY;
          };
          // The lanes of a warp see all columns, so that the four warps come to the same answer.
          const int lane = static_cast<int>(threadIdx.x % 32);
          const bool found = __any_sync(~0u, dead(0, lane) || dead(0, lane + 32)) != 0;
          attend(walk, NumbersOfColumns<S::kColumns>{numbers}, found, dead);
        }
      }
    }
  }
  bool any_dead = false;  // Outer::queries: of the warpgroup's rows
};

template <class T, Outer kOuter, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_kernel(const __grid_constant__ BackwardArguments x) {
  const BackwardParams& a = x.a;
  const Place place = place_of(static_cast<index_t>(blockIdx.x), a.walk.count,
                               kOuter == Outer::queries ? a.all_heads : a.all_heads_kv, x.section);
  const Group group = ptx::load_global(a.walk.groups + place.group);
  const Heads<kOuter> heads(a, place.head);
  auto& shared = shared_memory<BackwardShared<S>>();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&shared.rows_full, 1);
#pragma unroll
    for (int i = 0; i < 2 * kStages; ++i) {
      ptx::mbarrier_init(&shared.full[i / kStages][i % kStages], 1);
      ptx::mbarrier_init(&shared.empty[i / kStages][i % kStages], S::kConsumers * 4);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();

  const int warpgroup = static_cast<int>(threadIdx.x / kWarpgroup);
  if (warpgroup == 0) {
    ptx::registers_release<S::kProducerRegisters>();
    if (threadIdx.x == 0) produce(shared, x, heads, group);
    return;
  }
  ptx::registers_claim<S::kConsumerRegisters>();
  const int consumer = warpgroup - 1, first = consumer * kRowsWarpgroup;
  const index_t rows = kOuter == Outer::queries ? a.q_rows : a.k_rows;
  const index_t left = rows - group.first_row;
  const int valid = static_cast<int>(left < S::kRows ? left : S::kRows);
  const index_t row = group.first_row + first + thread_row();
  BackwardConsumer<T, kOuter, S> me{
      .shared = shared,
      .a = a,
      .consumer = consumer,
      .last_row = (first + kRowsWarpgroup < valid ? first + kRowsWarpgroup : valid) - 1,
      .own = {}};
  if constexpr (kOuter == Outer::queries) {
    me.own = {{query_numbers(a, place.head, row), query_numbers(a, place.head, row + 8)}};
    me.any_dead = warpgroup_any(
        shared.infinite[consumer],
        (row < rows && me.own.of[0].dead()) || (row + 8 < rows && me.own.of[1].dead()), consumer);
  }
  ptx::mbarrier_wait(&shared.rows_full, 0);
  me.run(heads, group);
  if constexpr (kOuter == Outer::queries) {
    add_rows(a.dq, place.head, row, rows, a.head_dim, me.first);
  } else {
    add_rows(a.dk, place.head, row, rows, a.head_dim, me.first);
    add_rows(a.dv, place.head, row, rows, a.dim_v, me.second);
  }
}

}  // namespace ringattn::cuda::sm90
