// What a backward plan costs: FLOPs, messages and bytes, without a ring.
#include <gtest/gtest.h>

#include "src/cost.h"
#include "tests/core/plan_check.h"

namespace ringattn::test {
namespace {

// Case A22: 2.5 times forward, pairs counted exactly (the halving convention would give 5368709120).
TEST(BackwardFlops, AreTwoAndAHalfTimesForward) {
  const HeadShape shape{.batch = 1, .num_heads = 16, .num_heads_kv = 16, .head_dim = 64};
  const Problem causal{.shape = shape, .mask = Mask::causal(1024, 1024)};
  EXPECT_EQ(backward_flops(causal), 2.5 * 2149580800.0);
  const Problem full{.shape = shape, .mask = Mask::full(1024, 1024)};
  EXPECT_EQ(backward_flops(full), 2.5 * 4294967296.0);
}

// Three products over head_dim (S, dQ, dK), two over head_dim_v (dP, dV): 15 pairs, 6 heads, batch 3.
TEST(BackwardFlops, CountEachProductOverItsOwnDimension) {
  const Problem problem{
      .shape = {.batch = 3, .num_heads = 6, .num_heads_kv = 2, .head_dim = 20, .head_dim_v = 7},
      .mask = Mask::causal(5, 5)};
  EXPECT_EQ(backward_flops(problem), 2.0 * 15 * (3 * 20 + 2 * 7) * 18);
  EXPECT_EQ(backward_flops(problem, 4), 2.0 * 4 * 74 * 18);
  EXPECT_EQ(backward_flops(problem, 0), 0.0);
}

std::uint64_t ten_bytes(index_t rows) { return static_cast<std::uint64_t>(rows) * 10; }
std::uint64_t hundred_bytes(index_t rows) { return static_cast<std::uint64_t>(rows) * 100; }

// Forward sends P - 1 messages, forward and backward 3 (P - 1).
TEST(BackwardTraffic, IsTwoMessagesAHop) {
  for (const int ranks : {1, 2, 3, 5, 64}) {
    const Sharding sharding = Sharding::make(LayoutKind::striped, 640, 640, ranks);
    for (const int rank : {0, ranks - 1}) {
      const Plan plan(problem_of(Mask::full(640, 640)), sharding, rank);
      const auto hops = static_cast<std::uint64_t>(ranks - 1);
      const Traffic forward = forward_traffic(plan, ten_bytes);
      const Traffic backward = backward_traffic(plan, ten_bytes, hundred_bytes);
      EXPECT_EQ(forward.messages_sent, hops);
      EXPECT_EQ(forward.messages_sent + backward.messages_sent, 3 * hops);
      if (640 % ranks == 0) {
        EXPECT_EQ(backward.bytes_sent, hops * 110 * (640 / static_cast<std::uint64_t>(ranks)));
      }
    }
  }
}

// Rank 1 of 4 over 11 = 3 + 3 + 3 + 2 keys: K and V of its own, rank 0's and rank 3's block, and dK, dV of
// every block but its own: 0, 3 and 2.
TEST(BackwardTraffic, NeverSendsWhatARankAddsToItsOwnBlock) {
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 11, 11, 4);
  const Plan plan(problem_of(Mask::full(11, 11)), sharding, 1);
  EXPECT_EQ(backward_traffic(plan, ten_bytes, hundred_bytes),
            (Traffic{.bytes_sent = 80 + 800, .messages_sent = 6}));
}

TEST(BackwardTraffic, LeavesOutEmptyBlocksAndCutHops) {
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 2, 2, 5);
  const Plan full(problem_of(Mask::full(2, 2)), sharding, 4);  // owners 4, 3, 2, 1, 0; two hold a row
  EXPECT_EQ(backward_traffic(full, ten_bytes, hundred_bytes),
            (Traffic{.bytes_sent = 10 + 200, .messages_sent = 3}));
  // A window of 5 tokens over 100 rows a rank needs the neighbour alone, whatever the number of ranks.
  const Plan window(problem_of(Mask::window(800, 800, {4, 0})),
                    Sharding::make(LayoutKind::contiguous, 800, 800, 8), 5);
  EXPECT_EQ(backward_traffic(window, ten_bytes, hundred_bytes),
            (Traffic{.bytes_sent = 1000 + 10000, .messages_sent = 2}));
}

// What all ranks send is what all ranks receive: every hop moves all keys, and every hop but the first all
// gradients.
TEST(BackwardTraffic, SumsToTheBlocksThatTravel) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Sharding sharding = Sharding::make(kind, 37, 23, 5);
    std::uint64_t sent = 0;
    for (int r = 0; r < 5; ++r)
      sent += backward_traffic(Plan(problem_of(Mask::full(37, 23)), sharding, r), ten_bytes, hundred_bytes)
                  .bytes_sent;
    EXPECT_EQ(sent, 4U * 23U * 110U);
  }
}

}  // namespace
}  // namespace ringattn::test
