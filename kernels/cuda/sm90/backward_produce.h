// Chapter 3, backward: what comes to the consumers, by a warp for what TMA loads and one for all else. They
// walk by themselves: with 24 registers a thread neither could do both.
#pragma once
#include "kernels/cuda/sm90/produce.h"
#include "kernels/cuda/sm90/weights.h"

namespace ringattn::cuda::sm90 {

// Maps: k and v in boxes of kRows rows, q and dout in boxes of kColumns.
struct BackwardArguments {
  CUtensorMap rows[2], columns[2];
  BackwardParams a;
  index_t section;  // see place_of
};

// By one thread.
template <class S>
__device__ __forceinline__ void load_tiles(BackwardShared<S>& shared, const BackwardArguments& x) {
  const BackwardWork& work = shared.work;
  ptx::mbarrier_arrive_expect_tx(&shared.rows_full, 2 * S::kPanels * S::kPanelRowsBytes);
#pragma unroll
  for (int i = 0; i < 2; ++i)
    load_panels(shared.rows[i], &x.rows[i], &shared.rows_full, ptx::load_shared(&work.first_row),
                ptx::load_shared(&work.head));
  int tile = 0;
#pragma unroll 1
  for (int head = first_query_head(x.a, work); head < end_query_head(x.a, work); ++head) {
    for (QueryWalk walk(x.a.walk, work); walk.next(); ++tile) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int slot = slot_of(tile);
        ptx::mbarrier_wait(&shared.empty[i][slot], phase_of(tile) ^ 1);
        load_tile(shared.columns[i][slot], &x.columns[i], &shared.full[i][slot], walk.tile.query, head);
      }
    }
  }
}

// Consumers may read what the warp knows of a tile.
template <class S>
__device__ __forceinline__ void tell(BackwardShared<S>& shared, int tile, const QueryTile& what) {
  if (threadIdx.x % 32 == 0) store_tile(&shared.tiles[slot_of(tile)], what);
  __syncwarp();
  if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&shared.told[slot_of(tile)]);
}

// By a warp: which queries are those of a tile, their numbers, and the end.
template <class S>
__device__ __forceinline__ void tell_tiles(BackwardShared<S>& shared, const BackwardParams& a) {
  const BackwardWork& work = shared.work;
  int tile = 0;
#pragma unroll 1
  for (int head = first_query_head(a, work); head < end_query_head(a, work); ++head) {
    for (QueryWalk walk(a.walk, work); walk.next(); ++tile) {
      ptx::mbarrier_wait(&shared.empty[0][slot_of(tile)], phase_of(tile) ^ 1);
      fetch_numbers(shared.numbers[slot_of(tile)], a, head, walk.tile.query);
      tell(shared, tile, walk.tile);
    }
  }
  ptx::mbarrier_wait(&shared.empty[0][slot_of(tile)], phase_of(tile) ^ 1);
  tell(shared, tile, {.query = -1});
}

}  // namespace ringattn::cuda::sm90
