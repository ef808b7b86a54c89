// The ring loops of src/executor.cpp, as they are, over communicators for device memory: whole calls are
// queued, forward and backward one behind the other, and only the end is waited for.
#include "src/executor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/device_ranks.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/toy_kernel.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

std::uint64_t q_value(index_t position) {
  return static_cast<std::uint64_t>(position + 1) * 0x9E3779B97F4A7C15u;
}
std::uint64_t k_value(index_t position) {
  return static_cast<std::uint64_t>(position + 7) * 0xC2B2AE3D27D4EB4Fu;
}

bool visible(const Mask& mask, index_t i, index_t j) {
  for (const Tile& tile : mask.tiles()) {
    const bool inside = tile.q.begin <= i && i < tile.q.end && tile.k.begin <= j && j < tile.k.end;
    if (inside && tile.band.contains(j - i)) return true;
  }
  return false;
}

std::vector<std::uint64_t> of_rank(const Layout& layout, int rank, std::uint64_t (*value)(index_t)) {
  std::vector<std::uint64_t> values;
  for (index_t row = 0; row < layout.rows(rank); ++row) values.push_back(value(layout.position(rank, row)));
  return values;
}

// Without the ring: over all positions of the other side.
std::vector<std::uint64_t> expected_rows(const Problem& problem, const Layout& own, int rank,
                                         bool of_queries) {
  std::vector<std::uint64_t> sums;
  const index_t others = of_queries ? problem.mask.seqlen_k() : problem.mask.seqlen_q();
  for (index_t row = 0; row < own.rows(rank); ++row) {
    const index_t me = own.position(rank, row);
    std::uint64_t sum = 0;
    for (index_t other = 0; other < others; ++other) {
      if (of_queries ? visible(problem.mask, me, other) : visible(problem.mask, other, me))
        sum += of_queries ? k_value(other) : q_value(other);
    }
    sums.push_back(sum);
  }
  return sums;
}

struct Case {
  Problem problem;
  LayoutKind layout;
  Mode mode;
};

std::vector<std::uint64_t> read_back(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> values(bytes.size() / 8);
  if (!bytes.empty()) cudaMemcpy(values.data(), bytes.data(), bytes.size(), cudaMemcpyDeviceToHost);
  return values;
}

void run_case(const RankThread& me, DeviceCommunicator& comm, const Case& c) {
  const Sharding sharding =
      Sharding::make(c.layout, c.problem.mask.seqlen_q(), c.problem.mask.seqlen_k(), me.size);
  const Plan plan(c.problem, sharding, me.rank);
  ToyKernel kernel(me.stream, of_rank(sharding.q, me.rank, q_value), of_rank(sharding.k, me.rank, k_value));
  Slots slots;
  for (int i = 0; i < 2; ++i) {
    const std::size_t bytes = kernel.block_bytes(sharding.k.max_rows());
    slots.block[static_cast<std::size_t>(i)] = kernel.allocate(bytes);
    slots.gradient[static_cast<std::size_t>(i)] = kernel.allocate(bytes);
  }
  const auto own_block = slots.block[0].bytes().first(kernel.block_bytes(plan.k_rows()));
  const BackwardRows rows{.load_rows = [&](const Poll&) { kernel.clear_rows(); },
                          .load_block = [&](std::span<std::byte> block) { kernel.write_own_block(block); }};
  const SentCount before = comm.sent();
  std::uint64_t bytes = 0;
  for (std::size_t s = 0; s + 1 < plan.hops().size(); ++s) bytes += kernel.block_bytes(plan.hops()[s].k_rows);

  Timing timing;
  for (int call = 0; call < 2; ++call) {
    kernel.clear_rows();
    kernel.write_own_block(own_block);
    run_forward(plan, kernel, comm, slots, {}, {}, c.mode, milliseconds(30'000), timing);
  }
  EXPECT_EQ(comm.sent().bytes - before.bytes, 2 * bytes);
  const auto end = Clock::now() + std::chrono::seconds(30);
  comm.settle(end);
  cudaStreamSynchronize(me.stream);
  EXPECT_EQ(read_back(kernel.rows()), expected_rows(c.problem, sharding.q, me.rank, true));

  std::span<const std::byte> sums;
  for (int call = 0; call < 2; ++call) {
    kernel.write_own_block(own_block);
    sums = run_backward(plan, kernel, comm, slots, rows, c.mode, milliseconds(30'000), timing);
  }
  comm.settle(end);
  cudaStreamSynchronize(me.stream);
  EXPECT_EQ(read_back(kernel.rows()), expected_rows(c.problem, sharding.q, me.rank, true));
  EXPECT_EQ(read_back(sums), expected_rows(c.problem, sharding.k, me.rank, false));
}

std::vector<Case> cases() {
  const HeadShape shape{.num_heads = 1, .num_heads_kv = 1, .head_dim = 8};
  std::vector<Case> list;
  // Primes, other lengths of q and k, and fewer tokens than ranks: shards that differ, and empty ones.
  const std::vector<Mask> masks = {Mask::causal(37, 37), Mask::full(29, 41), Mask::causal(3, 3),
                                   Mask::window(53, 53, {.left = 12, .right = 0})};
  for (const Mask& mask : masks) {
    for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
      for (const Mode mode : {Mode::overlap, Mode::blocking})
        list.push_back({.problem = {.shape = shape, .mask = mask}, .layout = layout, .mode = mode});
    }
  }
  return list;
}

class Executor : public testing::TestWithParam<int> {
 protected:
  void run(const MakeDeviceCommunicator& make, Devices devices = Devices::own, int seeds = 2) {
    for (int seed = 1; seed <= seeds; ++seed) {
      simt::config().seed = static_cast<std::uint64_t>(seed);
      const auto body = [&](RankThread& me) {
        const auto comm = make(me);
        for (const Case& c : cases()) run_case(me, *comm, c);
      };
      on_ranks(GetParam(), body, devices);
    }
  }
};

TEST_P(Executor, OverNccl) {
  run([](RankThread& me) { return make_nccl_communicator(me.host, me.stream); });
}
TEST_P(Executor, OverStagedBlocks) {
  run([](RankThread& me) { return make_staged(me.host, me.stream, {.chunk_bytes = 200}); }, Devices::own, 1);
}
TEST_P(Executor, OverRanksWithDevicesOfTheirOwn) {
  run([](RankThread& me) { return make_device_ranks(me.host, me.stream); });
}
TEST_P(Executor, OverRanksOfOneDevice) {
  run([](RankThread& me) { return make_device_ranks(me.host, me.stream); }, Devices::shared);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Executor, testing::Range(1, 6));

}  // namespace
}  // namespace ringattn::test
