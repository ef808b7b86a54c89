// Chapter 3: the producer's thread. Loads come in the order in which consumers need them: K0, K1 V0, K2 V1,
// ...
#pragma once
#include "kernels/cuda/sm90/shape.h"
#include "kernels/cuda/sm90/walk.h"

namespace ringattn::cuda::sm90 {

// Tensor maps are 3-D, [head][row][element], with boxes of one panel; see tensor_map.h.
template <int kPanels, int kBytes>
__device__ __forceinline__ void load_panels(std::uint8_t (&to)[kPanels][kBytes], const CUtensorMap* map,
                                            std::uint64_t* full, int row, int head) {
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel)
    ptx::tma_load(to[panel], map, full, panel * kPanelColumns, row, head);
}
// The same with all that `full` waits for in this phase.
template <int kPanels, int kBytes>
__device__ __forceinline__ void load_tile(std::uint8_t (&to)[kPanels][kBytes], const CUtensorMap* map,
                                          std::uint64_t* full, int row, int head) {
  ptx::mbarrier_arrive_expect_tx(full, kPanels * kBytes);
  load_panels(to, map, full, row, head);
}

template <class S>
struct Producer {
  Shared<S>& shared;
  const CUtensorMap *map_k, *map_v;
  int head;          // of K and V
  int k = 0, v = 0;  // the tiles that come next

  __device__ __forceinline__ void load_k(int key) {
    const int slot = slot_of(k);
    ptx::mbarrier_wait(&shared.k_empty[slot], phase_of(k++) ^ 1);
    load_tile(shared.k[slot], map_k, &shared.k_full[slot], key, head);
  }
  __device__ __forceinline__ void load_v(int key) {
    const int slot = slot_of(v);
    ptx::mbarrier_wait(&shared.v_empty[slot], phase_of(v++) ^ 1);
    load_tile(shared.v[slot], map_v, &shared.v_full[slot], key, head);
  }

  // A group has at least one tile.
  __device__ __forceinline__ void run(KeyWalk<S::kKeys> walk) {
    walk.next();
    load_k(walk.key);
    int waiting = walk.key;  // its V is still to be loaded
    while (walk.next()) {
      load_k(walk.key);
      load_v(waiting);
      waiting = walk.key;
    }
    load_v(waiting);
  }
};

}  // namespace ringattn::cuda::sm90
