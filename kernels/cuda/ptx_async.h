// sm_90: mbarriers, TMA copies, the async proxy, registers moved between warpgroups. Part of ptx.h, which
// says how.
#pragma once
#include <cuda.h>

#include "kernels/cuda/ptx.h"

#ifdef RINGATTN_SIMT
#include <simt_ptx_async.h>
#else

namespace ringattn::ptx {

// ---------------------------------------------------------------- mbarrier
// An 8-byte object in shared memory. A phase ends when `count` arrivals came and every byte that expect_tx
// announced has landed; the next begins at once. Waiters name the parity of the phase they wait for: 0, 1, 0,
// ... A fresh barrier lets parity 1 through, so producers that wait for `phase ^ 1` find every slot of a ring
// free at first.

__device__ __forceinline__ void mbarrier_init(std::uint64_t* barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
// Makes this thread's inits visible to the TMA unit; a __syncthreads must follow before others use the
// barriers.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Announces `bytes` of TMA data for the current phase, then arrives.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Returns once the phase of this parity has ended. The hardware suspends the thread inside try_wait for a
// while.
__device__ __forceinline__ void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  do {
    asm volatile(
        "{\n .reg .pred p;\n"
        " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (!done);
}

// ---------------------------------------------------------------- TMA
// `map` must be a __grid_constant__ kernel parameter or lie in global memory; one thread issues a copy.

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// One box of a 3-D or 4-D tensor at element coordinates, x innermost. Its bytes are reported to `barrier`:
// always the whole box, since parts outside the tensor are filled with zeros. The destination is 128-byte
// aligned (1024 where descriptors read a 128-byte swizzle).
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap* map, std::uint64_t* barrier, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], [%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_load(void* to, const CUtensorMap* map, std::uint64_t* barrier, int x,
                                         int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5, %6}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

// to[i] += from[i] for bytes / 4 floats, done by the copy unit: `to` global, `from` shared, both 16-byte
// aligned, bytes a multiple of 16. What threads stored into `from` needs fence_proxy_async and a barrier
// first. Blocks that add to one place do it in a fixed order, each with fence_proxy_async_global after it
// came to be its turn and bulk_wait before the next one's.
__device__ __forceinline__ void bulk_reduce_add(float* to, const float* from, std::uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until at most N of this thread's bulk groups still read shared memory: after it the source may be
// overwritten.
template <int N>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Waits until at most N of this thread's bulk groups are incomplete.
template <int N>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// Makes this thread's ordinary stores to shared memory visible to TMA and wgmma (the async proxy); a barrier
// follows.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory: what this thread has come to know of it holds for its bulk copies from here on.
__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// ---------------------------------------------------------------- registers of a warpgroup

// All four warps of a warpgroup execute these. N registers a thread from here on, a multiple of 8 in 24..256;
// claim waits until others have released enough.
template <int N>
__device__ __forceinline__ void registers_release() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_claim() {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// True on one lane of the 32, the same each time on a GPU, but no particular one.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile(
      "{\n .reg .pred p;\n"
      " elect.sync _|p, 0xFFFFFFFF;\n"
      " selp.u32 %0, 1, 0, p;\n}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace ringattn::ptx
#endif
