// Twin of kernels/cuda/ptx_async.h, executed by the harness.
#pragma once
#include "tests/simt/bulk_reduce.h"
#include "tests/simt/mbarrier.h"
#include "tests/simt/registers.h"
#include "tests/simt/tma.h"

namespace ringattn::ptx {

inline void mbarrier_init(std::uint64_t* barrier, std::uint32_t count, SIMT_WHERE) {
  simt::extension<simt::MBarriers>().init(simt::self(), shared_address(barrier, where), count, where);
}
inline void mbarrier_init_fence() { simt::extension<simt::MBarriers>().init_fence(simt::self()); }
inline void mbarrier_arrive(std::uint64_t* barrier, SIMT_WHERE) {
  simt::extension<simt::MBarriers>().arrive(simt::self(), shared_address(barrier, where), where);
}
inline void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes, SIMT_WHERE) {
  auto& barriers = simt::extension<simt::MBarriers>();
  const std::uint32_t address = shared_address(barrier, where);
  barriers.expect_tx(simt::self(), address, bytes, where);
  barriers.arrive(simt::self(), address, where);
}
inline void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity, SIMT_WHERE) {
  simt::extension<simt::MBarriers>().wait(simt::self(), shared_address(barrier, where), parity, where);
}

inline void tma_prefetch_map(const CUtensorMap*) {}
inline void tma_load(void* to, const CUtensorMap* map, std::uint64_t* barrier, int x, int y, int z,
                     SIMT_WHERE) {
  simt::extension<simt::TmaEngine>().load(simt::self(), shared_address(to, where), *map,
                                          shared_address(barrier, where), {x, y, z}, where);
}
inline void tma_load(void* to, const CUtensorMap* map, std::uint64_t* barrier, int x, int y, int z, int w,
                     SIMT_WHERE) {
  simt::extension<simt::TmaEngine>().load(simt::self(), shared_address(to, where), *map,
                                          shared_address(barrier, where), {x, y, z, w}, where);
}

inline void bulk_reduce_add(float* to, const float* from, std::uint32_t bytes, SIMT_WHERE) {
  simt::extension<simt::BulkReduce>().issue(simt::self(), to, shared_address(from, where), bytes, where);
}
inline void bulk_commit() { simt::extension<simt::BulkReduce>().commit(simt::self()); }
template <int N>
void bulk_wait_read() {
  simt::extension<simt::BulkReduce>().wait_read(simt::self(), N);
}
template <int N>
void bulk_wait() {
  simt::extension<simt::BulkReduce>().wait(simt::self(), N);
}

inline void fence_proxy_async() {
  simt::Thread& t = simt::self();
  t.block->race.fence_proxy(t.warp);
}

inline void fence_proxy_async_global() { simt::self().block->fence_proxy(); }

template <int N>
void registers_release(SIMT_WHERE) {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  simt::extension<simt::RegisterFile>().set(simt::self(), N, where);
}
template <int N>
void registers_claim(SIMT_WHERE) {
  static_assert(N % 8 == 0 && N >= 24 && N <= 256);
  simt::extension<simt::RegisterFile>().set(simt::self(), N, where);
}

inline bool elect_one(SIMT_WHERE) { return simt::elect(~0u, where); }

}  // namespace ringattn::ptx
