// Mistakes in tiny kernels: each is reported under every seed, by the name of what is missing.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cuda/ptx.h"
#include "tests/simt/every_seed.h"
#include "tests/simt/guard.h"
#include "tests/simt/run_kernel.h"
#include "tests/simt/stats.h"

namespace ringattn {
namespace {

using simt::DeviceArray, simt::FaultKind, simt::run_block;

// ---------------------------------------------------------------- barriers

enum class Sync { none, warp, block };
__global__ void exchange(float* out, unsigned partner, Sync sync) {
  auto* const s = reinterpret_cast<float*>(ptx::dynamic_shared());
  ptx::store_shared(s + threadIdx.x, static_cast<float>(threadIdx.x));
  if (sync == Sync::warp) __syncwarp();
  if (sync == Sync::block) __syncthreads();
  ptx::store_global(out + threadIdx.x, ptx::load_shared(s + (threadIdx.x ^ partner)));
}
void run_exchange(unsigned partner, Sync sync) {
  const DeviceArray<float> out(128);
  run_block(exchange, 128, 512, out.data(), partner, sync);
  for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(out.host()[i], static_cast<float>(i ^ partner));
}
TEST(Faults, RightExchangesPass) {
  simt::in_every_seed([] {
    run_exchange(64, Sync::block);
    run_exchange(1, Sync::block);
    run_exchange(1, Sync::warp);
    run_exchange(0, Sync::none);
  });
}
TEST(Faults, NoBarrierBetweenWarps) {
  simt::expect_fault(FaultKind::race, "no barrier orders it after warp",
                     [] { run_exchange(64, Sync::none); });
  simt::expect_fault(FaultKind::race, "no barrier orders it after warp",
                     [] { run_exchange(64, Sync::warp); });
}
TEST(Faults, NoSyncwarpBetweenLanes) {
  simt::expect_fault(FaultKind::race, "no __syncwarp orders it after lane",
                     [] { run_exchange(1, Sync::none); });
}
// The same without the order checks: shuffled schedules alone show it under many seeds, not under all.
TEST(Faults, ShufflingAloneShowsAMissingBarrierInMostSchedules) {
  const simt::Config before = simt::config();
  simt::config().race_check = false;
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    simt::config().seed = seed;
    const DeviceArray<float> out(128);
    run_block(exchange, 128, 512, out.data(), 64u, Sync::none);
    const auto got = out.host();
    for (unsigned i = 0; i < 128; ++i)
      if (!(got[i] == static_cast<float>(i ^ 64))) {
        ++wrong;
        break;
      }
  }
  simt::config() = before;
  EXPECT_GT(wrong, 50);
}

__global__ void half_barrier() {
  if (threadIdx.x < 64) __syncthreads();
}
TEST(Faults, BarrierThatHalfTheBlockMisses) {
  simt::expect_fault(FaultKind::deadlock, "threads 0-63 wait for barrier 0",
                     [] { run_block(half_barrier, 128, 0); });
}
__global__ void unmatched_arrive() { ptx::named_barrier_arrive(1, 64); }
TEST(Faults, ArrivalsThatNobodyWaitsFor) {
  simt::expect_fault(FaultKind::divergence, "barrier 1", [] { run_block(unmatched_arrive, 32, 0); });
}
__global__ void two_counts() { ptx::named_barrier_sync(2, threadIdx.x < 32 ? 64 : 96); }
TEST(Faults, NamedBarrierWithTwoCounts) {
  simt::expect_fault(FaultKind::divergence, "barrier 2", [] { run_block(two_counts, 96, 0); });
}
__global__ void diverged_product() {
  float d[4] = {};
  const std::uint32_t a[4] = {};
  if (threadIdx.x % 32 < 8) ptx::mma_m16n8k16<__nv_bfloat16>(d, a, 0, 0);
}
TEST(Faults, ProductByPartOfAWarp) {
  simt::expect_fault(FaultKind::deadlock, "mma", [] { run_block(diverged_product, 32, 0); });
}
__global__ void two_places() {
  float d[4] = {};
  const std::uint32_t a[4] = {};
  if (threadIdx.x % 2 == 0)
    ptx::mma_m16n8k16<__half>(d, a, 0, 0);
  else
    ptx::mma_m16n8k16<__half>(d, a, 1, 0);
}
TEST(Faults, ProductAtTwoPlacesOfTheProgram) {
  simt::expect_fault(FaultKind::divergence, "other lanes are at line", [] { run_block(two_places, 32, 0); });
}

// ---------------------------------------------------------------- cp.async

enum class Copy { right, no_wait, no_barrier, no_commit, overwritten };
__global__ void copy(const float4* in, float* out, Copy what) {
  auto* const s = reinterpret_cast<float4*>(ptx::dynamic_shared());
  const unsigned t = threadIdx.x;
  ptx::cp_async<16>(ptx::shared_address(s + t), in + t);
  if (what != Copy::no_commit) ptx::cp_async_commit();
  if (what != Copy::no_wait) ptx::cp_async_wait<0>();
  if (what != Copy::no_barrier) __syncthreads();
  ptx::store_global(out + t, ptx::load_shared(s + (t ^ 33)).x);
  if (what == Copy::overwritten) ptx::cp_async<16>(ptx::shared_address(s + t), in + t);
}
void run_copy(Copy what) {
  std::vector<float4> values(64);
  for (std::size_t i = 0; i < 64; ++i) values[i].x = static_cast<float>(i);
  const DeviceArray<float4> in(values);
  const DeviceArray<float> out(64);
  run_block(copy, 64, 1024, in.data(), out.data(), what);
  const auto got = out.host();
  for (unsigned i = 0; i < 64; ++i)
    if (got[i] != static_cast<float>(i ^ 33)) throw simt::Fault(FaultKind::poison, "wrong value");
}
TEST(Faults, RightCopyPasses) {
  simt::in_every_seed([] { EXPECT_NO_THROW(run_copy(Copy::right)); });
}
TEST(Faults, ReadingACopyThatWasNotWaitedFor) {
  simt::expect_fault(FaultKind::poison, "wrong value", [] { run_copy(Copy::no_wait); });
  simt::expect_fault(FaultKind::poison, "wrong value", [] { run_copy(Copy::no_commit); });
}
TEST(Faults, ReadingTheCopyOfAnotherThreadWithoutABarrier) {
  simt::expect_fault(FaultKind::race, "no barrier orders it", [] { run_copy(Copy::no_barrier); });
}
TEST(Faults, CopyingOverWhatIsStillRead) {
  simt::expect_fault(FaultKind::race, "no barrier orders it after warp", [] { run_copy(Copy::overwritten); });
}

// ---------------------------------------------------------------- places

__global__ void matrix_at(unsigned first, unsigned step) {
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, ptx::shared_address(ptx::dynamic_shared()) + first + threadIdx.x * step);
}
TEST(Faults, MatrixOutsideSharedMemory) {
  simt::expect_fault(FaultKind::out_of_bounds, "of 256", [] { run_block(matrix_at, 32, 256, 0u, 16u); });
  simt::expect_fault(FaultKind::out_of_bounds, "shared offset -16",
                     [] { run_block(matrix_at, 32, 512, 0u - 16u, 16u); });
}
TEST(Faults, MisalignedMatrix) {
  simt::expect_fault(FaultKind::misaligned, "16-byte", [] { run_block(matrix_at, 32, 512, 0u, 8u); });
}
__global__ void load_from(const float* p, std::ptrdiff_t offset) { ptx::load_global(p + offset); }
__global__ void load_wide(const float* p) { ptx::load_global(reinterpret_cast<const float4*>(p + 2)); }
TEST(Faults, GlobalAccessOutsideItsAllocation) {
  const DeviceArray<float> a(30);
  for (const std::ptrdiff_t offset : {30, 31, -1, 100000})
    simt::expect_fault(FaultKind::out_of_bounds, "global",
                       [&] { run_block(load_from, 1, 0, a.data(), offset); });
  EXPECT_NO_THROW(run_block(load_from, 1, 0, a.data(), std::ptrdiff_t{29}));
}
TEST(Faults, MisalignedGlobalAccess) {
  const DeviceArray<float> a(30);
  simt::expect_fault(FaultKind::misaligned, "16-byte", [&] { run_block(load_wide, 1, 0, a.data()); });
}
TEST(Faults, KernelThatTouchesPageableHostMemory) {
  const std::vector<float> host(30);
  simt::expect_fault(FaultKind::out_of_bounds, "pageable",
                     [&] { run_block(load_from, 1, 0, host.data(), std::ptrdiff_t{0}); });
}
#ifndef SIMT_ADDRESS_SANITIZER  // the sanitizer ends the process at the very store
__global__ void raw_overrun(int past) { ptx::dynamic_shared()[64 + past] = 1; }
__global__ void raw_global(char* p) { p[30] = 1; }
TEST(Faults, RawStoresPastTheEndAreSeenByTheirGuards) {
  simt::expect_fault(FaultKind::out_of_bounds, "guard zone of shared",
                     [] { run_block(raw_overrun, 1, 64, 3); });
  const DeviceArray<char> a(30);
  simt::expect_fault(FaultKind::out_of_bounds, "guard zone of a global",
                     [&] { run_block(raw_global, 1, 0, a.data()); });
}
#endif
// One thread fails while others have not begun: none may be left half way, and the next launch must run.
__global__ void early_fault(int* out) {
  if (threadIdx.x == 77) ptx::store_global(out + 1000000, 1);
  __syncthreads();
}
TEST(Faults, BlockThatFailedLeavesNothingBehind) {
  const DeviceArray<int> out(1);
  simt::expect_fault(FaultKind::out_of_bounds, "thread 77",
                     [&] { run_block(early_fault, 128, 0, out.data()); });
  run_exchange(64, Sync::block);
}

// ---------------------------------------------------------------- blocks

__global__ void same_place(float* out, unsigned stride) {
  ptx::store_global(out + blockIdx.x * stride, 1.0f);
}
__global__ void add_here(float* out, bool atomic) {
  if (atomic)
    ptx::atomic_add_global(out, 1.0f);
  else
    ptx::store_global(out, ptx::load_global(out) + 1.0f);
}
template <class K, class... A>
void run_grid_of(K kernel, unsigned blocks, A... args) {
  const simt::StreamOwner stream;
  simt::launch(kernel, dim3(blocks), dim3(1), 0, stream, args...);
  cudaStreamSynchronize(stream);
}
TEST(Faults, TwoBlocksThatWriteOnePlace) {
  const auto write = [](unsigned stride) {
    const DeviceArray<float> out(8);
    run_grid_of(same_place, 3, out.data(), stride);
  };
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [&] { write(0); });
  EXPECT_NO_THROW(write(1));  // neighbouring floats are no race
}
TEST(Faults, SumOfBlocksWithoutAtomics) {
  const auto sum = [](bool atomic) {
    const DeviceArray<float> out(std::vector<float>{0});
    run_grid_of(add_here, 5, out.data(), atomic);
    return out.host()[0];
  };
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [&] { sum(false); });
  EXPECT_EQ(sum(true), 5);
}

// ---------------------------------------------------------------- what costs only time

__global__ void columns(bool swizzle) {
  const std::uint32_t base = ptx::shared_address(ptx::dynamic_shared());
  for (unsigned chunk = 0; chunk < 8; ++chunk)
    ptx::store_shared(base + threadIdx.x * 128 + chunk * 16, float4{});
  __syncwarp();
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, base + threadIdx.x * 128 + (swizzle ? threadIdx.x % 8 * 16 : 0));
}
TEST(Faults, MissingSwizzleShowsInTheCountOfBankConflicts) {
  simt::stats().reset();
  run_block(columns, 32, 4096, true);
  EXPECT_EQ(simt::stats().bank_conflicts, 0u);
  run_block(columns, 32, 4096, false);
  EXPECT_EQ(simt::stats().bank_conflicts, 28u);  // four phases of eight rows in one group of banks
}

}  // namespace
}  // namespace ringattn
