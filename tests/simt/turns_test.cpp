// Blocks of one launch that wait for one another: what one has done in its turn is ordered before the next
// one's, and each step of the hand-over that is missing is a fault under every seed.
#include <gtest/gtest.h>

#include "kernels/cuda/ptx.h"
#include "tests/simt/every_seed.h"
#include "tests/simt/run_kernel.h"

namespace ringattn {
namespace {

using simt::DeviceArray, simt::FaultKind;

enum class Turn { right, no_wait, no_proxy_fence, not_awaited, no_fence, not_counted, wrong, too_late };

constexpr unsigned kBlocks = 13, kFloats = 32;

// Each block of a warp takes a number and adds its terms to `sums` when it is its turn.
__global__ void add_in_turn(float* sums, int* ticket, int* done, Turn what) {
  auto* const mine = reinterpret_cast<float*>(ptx::dynamic_shared());
  int turn = threadIdx.x == 0 ? ptx::atomic_add_global(ticket, 1) : 0;
  turn = ptx::shuffle(turn, 0);
  ptx::store_shared(mine + threadIdx.x, 0.1f / static_cast<float>(turn + 1));
  ptx::fence_proxy_async();
  __syncwarp();
  if (threadIdx.x != 0) return;
  const int awaited = what == Turn::wrong && turn == 5 ? 7 : what == Turn::too_late && turn == 5 ? 6 : turn;
  if (what != Turn::no_wait) ptx::wait_global(done, awaited);
  if (what != Turn::no_proxy_fence) ptx::fence_proxy_async_global();
  ptx::bulk_reduce_add(sums, mine, kFloats * sizeof(float));
  ptx::bulk_commit();
  ptx::bulk_wait_read<0>();
  if (what != Turn::not_awaited) ptx::bulk_wait<0>();
  if (what != Turn::no_fence) ptx::fence_global();
  if (what != Turn::not_counted) ptx::atomic_add_global(done, 1);
}

void run_turns(Turn what) {
  const DeviceArray<float> sums(std::vector<float>(kFloats, 0));
  const DeviceArray<int> counters(std::vector<int>{0, 0});
  const simt::StreamOwner stream;
  simt::launch(add_in_turn, dim3(kBlocks), dim3(32), kFloats * sizeof(float), stream, sums.data(),
               counters.data(), counters.data() + 1, what);
  cudaStreamSynchronize(stream);
  float expected = 0;  // in this order and no other
  for (unsigned turn = 0; turn < kBlocks; ++turn) expected += 0.1f / static_cast<float>(turn + 1);
  EXPECT_EQ(sums.host(), std::vector<float>(kFloats, expected));
}

TEST(Turns, SumsAreFormedInTheSameOrderHoweverManyBlocksRunAtOnce) {
  simt::in_every_seed([] {
    for (const unsigned resident : {1u, 2u, 5u, 100u})
      for (const unsigned workers : {1u, 3u}) {
        SCOPED_TRACE(std::to_string(resident) + " a worker, workers " + std::to_string(workers));
        simt::config().resident = resident;
        simt::config().workers = workers;
        run_turns(Turn::right);
      }
  });
}
TEST(TurnsFaults, AddingWithoutWaiting) {
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [] { run_turns(Turn::no_wait); });
}
TEST(TurnsFaults, WhatWasWaitedForIsNotFencedForTheCopyUnit) {
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [] { run_turns(Turn::no_proxy_fence); });
}
TEST(TurnsFaults, HandingOverBeforeTheSumHasLanded) {
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [] { run_turns(Turn::not_awaited); });
}
TEST(TurnsFaults, HandingOverWithoutAFence) {
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [] { run_turns(Turn::no_fence); });
}
TEST(TurnsFaults, TurnsThatNeverCome) {
  for (const Turn what : {Turn::not_counted, Turn::wrong, Turn::too_late})
    simt::expect_fault(FaultKind::deadlock, "a counter of other blocks", [&] { run_turns(what); });
}
TEST(TurnsFaults, TurnsThatNeverComeOnSeveralWorkers) {
  const simt::Config before = simt::config();
  simt::config().workers = 3;
  simt::expect_fault(FaultKind::deadlock, "a counter of other blocks", [] { run_turns(Turn::not_counted); });
  simt::config() = before;
}

// A block may wait for those that began before it. In the order of blockIdx it may wait for one that cannot
// begin before it ends.
__global__ void wait_for_the_next(int* done) {
  if (blockIdx.x + 1 < gridDim.x) ptx::wait_global(done, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  ptx::atomic_add_global(done, 1);
}
TEST(TurnsFaults, WaitingForABlockThatHasNoRoomToBegin) {
  const simt::Config before = simt::config();
  simt::config().resident = 2;
  simt::expect_fault(FaultKind::deadlock, "a counter of other blocks", [] {
    const DeviceArray<int> done(std::vector<int>{0});
    const simt::StreamOwner stream;
    simt::launch(wait_for_the_next, dim3(50), dim3(1), 0, stream, done.data());
    cudaStreamSynchronize(stream);
  });
  simt::config() = before;
}

// Stores as well as copies: what a block wrote may be read by those that waited for it.
__global__ void pass_on(float* cell, int* ticket, int* done, bool fence) {
  const int turn = ptx::atomic_add_global(ticket, 1);
  ptx::wait_global(done, turn);
  ptx::store_global(cell, ptx::load_global(cell) * 0.5f + 1);
  if (fence) ptx::fence_global();
  ptx::atomic_add_global(done, 1);
}
float run_pass_on(bool fence) {
  const DeviceArray<float> cell(std::vector<float>{0});
  const DeviceArray<int> counters(std::vector<int>{0, 0});
  const simt::StreamOwner stream;
  simt::launch(pass_on, dim3(4), dim3(1), 0, stream, cell.data(), counters.data(), counters.data() + 1,
               fence);
  cudaStreamSynchronize(stream);
  return cell.host()[0];
}
TEST(Turns, StoresArePassedOnBehindAFence) {
  simt::in_every_seed([] { EXPECT_EQ(run_pass_on(true), 1.875f); });
  simt::expect_fault(FaultKind::race, "two blocks of one launch", [] { run_pass_on(false); });
}

}  // namespace
}  // namespace ringattn
