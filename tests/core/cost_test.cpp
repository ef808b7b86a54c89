#include "src/cost.h"

#include <gtest/gtest.h>

#include "src/error.h"
#include "tests/core/plan_check.h"

namespace ringattn::test {
namespace {

Problem shaped(Mask mask, HeadShape shape) { return {.shape = shape, .mask = std::move(mask)}; }

// Values of case A22, pairs counted exactly.
TEST(Flops, CountVisiblePairs) {
  const HeadShape shape{.batch = 1, .num_heads = 16, .num_heads_kv = 16, .head_dim = 64};
  EXPECT_EQ(forward_flops(shaped(Mask::full(1024, 1024), shape)), 4294967296.0);
  EXPECT_EQ(forward_flops(shaped(Mask::causal(1024, 1024), shape)), 2149580800.0);
  const HeadShape large{.batch = 1, .num_heads = 32, .num_heads_kv = 8, .head_dim = 128};
  EXPECT_EQ(forward_flops(shaped(Mask::full(1048576, 1048576), large)), 18014398509481984.0);
}

TEST(Flops, CountBothHeadDimensionsAndTheBatch) {
  const HeadShape shape{.batch = 3, .num_heads = 6, .num_heads_kv = 2, .head_dim = 20, .head_dim_v = 7};
  // 2 * pairs * (20 + 7) * 6 heads * 3, with 5 * 6 / 2 = 15 pairs.
  EXPECT_EQ(forward_flops(shaped(Mask::causal(5, 5), shape)), 2.0 * 15 * 27 * 18);
  EXPECT_EQ(forward_flops(shaped(Mask::causal(5, 5), shape), 4), 2.0 * 4 * 27 * 18);
}

std::uint64_t ten_bytes_a_row(index_t rows) { return static_cast<std::uint64_t>(rows) * 10; }

// Rank 1 of 4 hands on what it has at hops 0, 1 and 2: its own 3 rows, rank 0's 3 and rank 3's 2 (11 = 3 + 3
// + 3 + 2).
TEST(Traffic, IsEveryBlockButTheLastOne) {
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 11, 11, 4);
  const Plan plan(problem_of(Mask::full(11, 11)), sharding, 1);
  EXPECT_EQ(forward_traffic(plan, ten_bytes_a_row), (Traffic{.bytes_sent = 80, .messages_sent = 3}));
}

TEST(Traffic, LeavesOutEmptyBlocksAndCutHops) {
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 2, 2, 5);
  // Rank 4 of 5 over 2 rows: hops to owners 4, 3, 2, 1, 0 if all were needed; only rank 1 sees rank 0, at hop
  // 1, and rank 0 sees rank 1 at hop 4 in a full mask.
  const Plan full(problem_of(Mask::full(2, 2)), sharding, 4);
  ASSERT_EQ(full.hops().size(), 5U);
  EXPECT_EQ(forward_traffic(full, ten_bytes_a_row), (Traffic{.bytes_sent = 10, .messages_sent = 1}));
  const Plan causal(problem_of(Mask::causal(2, 2)), sharding, 4);
  ASSERT_EQ(causal.hops().size(), 2U);
  EXPECT_EQ(forward_traffic(causal, ten_bytes_a_row), Traffic{});
  const Plan alone(problem_of(Mask::full(9, 9)), Sharding::make(LayoutKind::zigzag, 9, 9, 1), 0);
  EXPECT_EQ(forward_traffic(alone, ten_bytes_a_row), Traffic{});
}

// What all ranks send is what all ranks receive: block by block, summed over the ring.
TEST(Traffic, SumsToTheBlocksThatTravel) {
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 37, 23, 5);
  std::uint64_t sent = 0;
  for (int r = 0; r < 5; ++r) {
    sent += forward_traffic(Plan(problem_of(Mask::full(37, 23)), sharding, r), ten_bytes_a_row).bytes_sent;
  }
  EXPECT_EQ(sent, 4U * 23U * 10U);  // 4 hops, each moves all 23 keys
}

constexpr int kRanks = 512;

// n rows a rank: the slowest rank has n^2 pairs at every hop but the first.
TEST(Balance, ContiguousCausalIsNearlyHalf) {
  constexpr index_t n = 64, p = kRanks, length = n * p;
  const Balance b = ring_balance(problem_of(Mask::causal(length, length)),
                                 Sharding::make(LayoutKind::contiguous, length, length, kRanks));
  EXPECT_EQ(b.total_pairs, length * (length + 1) / 2);
  EXPECT_EQ(b.critical_pairs, n * (n + 1) / 2 + (p - 1) * n * n);
  EXPECT_NEAR(b.value(), 0.5, 0.001);
}

TEST(Balance, ZigzagCausalIsPerfectWhereChunksAreEqual) {
  constexpr index_t length = 2 * 31 * kRanks;
  const Balance b = ring_balance(problem_of(Mask::causal(length, length)),
                                 Sharding::make(LayoutKind::zigzag, length, length, kRanks));
  EXPECT_EQ(b.total_pairs, length * (length + 1) / 2);
  EXPECT_EQ(b.value(), 1.0);
}

// At every hop some rank has the diagonal, n (n + 1) / 2 pairs, so balance = (P n + 1) / (P (n + 1)).
TEST(Balance, StripedCausalLosesHalfADiagonal) {
  constexpr index_t n = 64, p = kRanks, length = n * p;
  const Balance b = ring_balance(problem_of(Mask::causal(length, length)),
                                 Sharding::make(LayoutKind::striped, length, length, kRanks));
  EXPECT_EQ(b.critical_pairs, p * n * (n + 1) / 2);
  EXPECT_DOUBLE_EQ(b.value(), static_cast<double>(p * n + 1) / static_cast<double>(p * (n + 1)));
}

TEST(Balance, IsTheSumOverHopsOfTheSlowestRank) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Problem problem = problem_of(Mask::window(97, 89, {13, 5}));
    const Sharding sharding = Sharding::make(kind, 97, 89, 5);
    std::vector<Plan> plans;
    for (int r = 0; r < 5; ++r) plans.emplace_back(problem, sharding, r);
    index_t total = 0, critical = 0;
    for (std::size_t s = 0; s < plans[0].hops().size(); ++s) {
      index_t most = 0;
      for (const Plan& plan : plans) {
        most = std::max(most, plan.hops()[s].pairs);
        total += plan.hops()[s].pairs;
      }
      critical += most;
    }
    const Balance b = ring_balance(problem, sharding);
    EXPECT_EQ(b.total_pairs, total);
    EXPECT_EQ(b.critical_pairs, critical);
    EXPECT_DOUBLE_EQ(b.value(), static_cast<double>(total) / 5 / static_cast<double>(critical));
  }
}

TEST(Balance, OfNothingIsOne) {
  const Balance b = ring_balance(problem_of(Mask::full(0, 9)), Sharding::make(LayoutKind::striped, 0, 9, 3));
  EXPECT_EQ(b.value(), 1.0);
  EXPECT_EQ(b.ranks, 3);
}

// Rank 1 of 3 over 5 rows of q and 7 of k has 2 and 2 of them (layout: 2, 2, 1 and 3, 2, 2), and all three
// blocks at hand. bf16 tensors, fp32 lse.
TEST(BytesToMove, AreTensorsOnceAndEveryBlockAtHandTwice) {
  const Problem problem{
      .shape = {.batch = 3, .num_heads = 6, .num_heads_kv = 2, .head_dim = 20, .head_dim_v = 7},
      .dtype = DType::bf16,
      .mask = Mask::full(5, 7)};
  const Plan plan(problem, Sharding::make(LayoutKind::contiguous, 5, 7, 3), 1);
  const double tensors = 3.0 * (2 * 6 + 2 * 2) * 27 * 2, lse = 3 * 2 * 6 * 4;
  EXPECT_EQ(forward_bytes(problem, plan, ten_bytes_a_row), tensors + lse + 2 * 70);
  const auto hundred_bytes_a_row = [](index_t rows) { return static_cast<std::uint64_t>(rows) * 100; };
  EXPECT_EQ(backward_bytes(problem, plan, ten_bytes_a_row, hundred_bytes_a_row),
            2 * tensors + lse + 2 * 70 + 2 * 700);
}

TEST(BytesToMove, DoNotCountHopsThatAreCut) {
  const Problem window = problem_of(Mask::window(12, 12, {.left = 1, .right = 0}));
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 12, 12, 4);
  ASSERT_EQ(Plan(window, sharding, 2).hops().size(), 2U);
  const double full = forward_bytes(problem_of(Mask::full(12, 12)),
                                    Plan(problem_of(Mask::full(12, 12)), sharding, 2), ten_bytes_a_row);
  EXPECT_EQ(forward_bytes(window, Plan(window, sharding, 2), ten_bytes_a_row), full - 2 * 2 * 30);
}

}  // namespace
}  // namespace ringattn::test
