#include "launch/ring_survey.h"

#include <gtest/gtest.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "launch/plan_report.h"
#include "src/attention.h"

namespace ringattn::launch {
namespace {

Problem problem_of(Mask mask) {
  return {.shape = {.batch = 2, .num_heads = 3, .num_heads_kv = 1, .head_dim = 8, .head_dim_v = 4},
          .dtype = DType::f32,
          .mask = std::move(mask),
          .rope = {},
          .softmax_scale = {}};
}

TEST(RingSurvey, RanksAddUpToTheProblem) {
  const std::vector<index_t> cu{0, 40, 40, 101};
  for (const Mask& mask : {Mask::full(101, 101), Mask::causal(101, 101), Mask::window(101, 101, {7, 0}),
                           Mask::documents(101, 101, cu, cu, {-1, 0})}) {
    for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
      for (const int ranks : {1, 3, 5, 150}) {
        const Problem problem = problem_of(mask);
        const Sharding sharding = Sharding::make(kind, 101, 101, ranks);
        const RingSurvey survey = survey_ring(problem, sharding, 1, 1e9);
        ASSERT_EQ(std::ssize(survey.ranks), ranks);
        index_t pairs = 0;
        double flops = 0, backward = 0;
        for (const PlannedRank& rank : survey.ranks) {
          pairs += rank.pairs;
          flops += rank.forward.flops;
          backward += rank.backward.flops;
        }
        EXPECT_EQ(pairs, mask.visible_pairs());
        EXPECT_DOUBLE_EQ(flops, forward_flops(problem));
        EXPECT_DOUBLE_EQ(backward, backward_flops(problem));
        ASSERT_TRUE(survey.balance.has_value());
        EXPECT_DOUBLE_EQ(survey.balance->value(), ring_balance(problem, sharding).value());
      }
    }
  }
}

// Issue 3, figure (c): P - 1 messages forward, 3(P - 1) forward and backward.
TEST(RingSurvey, BackwardSendsEveryBlockAndItsGradients) {
  for (const int ranks : {1, 2, 3, 5}) {
    const Problem problem = problem_of(Mask::causal(101, 101));
    const Sharding sharding = Sharding::make(LayoutKind::zigzag, 101, 101, ranks);
    for (const PlannedRank& rank : survey_ring(problem, sharding, 1, 1e9).ranks) {
      EXPECT_EQ(rank.forward.traffic.messages_sent, static_cast<std::uint64_t>(ranks - 1));
      EXPECT_EQ(rank.backward.traffic.messages_sent, static_cast<std::uint64_t>(2 * (ranks - 1)));
      EXPECT_EQ(rank.backward.workspace_bytes,
                static_cast<double>(workspace(problem, sharding, rank.rank, 1, Pass::backward).total()));
      EXPECT_GT(rank.backward.workspace_bytes, rank.forward.workspace_bytes);
      EXPECT_GT(rank.backward.tensor_bytes, rank.forward.tensor_bytes);
    }
  }
}

// Blocks, workspace and traffic are those of the kernel that is planned for; the rest is the same.
TEST(RingSurvey, IsOfTheBackendsKernel) {
  const Problem problem = problem_of(Mask::causal(101, 101));
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 101, 101, 3);
  const auto cpu = survey_ring(problem, sharding, 1, 1e9).ranks;
  const auto cuda = survey_ring(problem, sharding, 1, 1e9, Backend::cuda).ranks;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const Plan plan(problem, sharding, static_cast<int>(rank));
    const Traffic traffic = backward_traffic(
        plan, [&](index_t rows) { return cuda_block_bytes(problem.heads(), DType::f32, rows); },
        [&](index_t rows) { return cuda_gradient_bytes(problem.heads(), rows); });
    EXPECT_EQ(cuda[rank].backward.traffic, traffic);
    EXPECT_NE(cuda[rank].backward.traffic, cpu[rank].backward.traffic);
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      const PlannedPass& planned = pass == Pass::forward ? cuda[rank].forward : cuda[rank].backward;
      EXPECT_EQ(planned.workspace_bytes,
                static_cast<double>(
                    workspace(problem, sharding, static_cast<int>(rank), 1, pass, Backend::cuda).total()));
    }
    EXPECT_EQ(cuda[rank].pairs, cpu[rank].pairs);
    EXPECT_EQ(cuda[rank].forward.tensor_bytes, cpu[rank].forward.tensor_bytes);
  }
}

TEST(RingSurvey, SaysSoWhenAllRanksWouldTakeTooLong) {
  const Problem problem = problem_of(Mask::causal(1000, 1000));
  const RingSurvey survey =
      survey_ring(problem, Sharding::make(LayoutKind::zigzag, 1000, 1000, 9), 1, /*patience_seconds=*/0);
  ASSERT_EQ(survey.ranks.size(), 3u);
  EXPECT_EQ(survey.ranks[1].rank, 4);
  EXPECT_EQ(survey.ranks[2].rank, 8);
  EXPECT_FALSE(survey.balance.has_value());
  EXPECT_NE(survey.incomplete.find("all 9 ranks"), std::string::npos);
}

TEST(Estimate, TakesTheLongerOfComputeAndTransferAtEachHop) {
  const Problem problem = problem_of(Mask::full(10, 10));
  // 100 pairs x 3 heads x 2 batches x 2 x (8 + 4) FLOP = 14,400 a hop.
  const std::vector<PlannedHop> hops{{.largest_pairs = 100, .largest_rows = 5},
                                     {.largest_pairs = 100, .largest_rows = 5}};
  const double bits = 8 * static_cast<double>(cpu_block_bytes(problem.heads(), DType::f32, 5));

  const Estimate alone = estimate(problem, hops, {.flops_per_second = 14'400});
  EXPECT_DOUBLE_EQ(alone.seconds, 2);
  EXPECT_DOUBLE_EQ(alone.compute_seconds, 2);
  EXPECT_DOUBLE_EQ(alone.transfer_seconds, 0);

  // Half a second a transfer is hidden behind a second of work; the last hop sends nothing.
  const Estimate hidden = estimate(
      problem, hops, {.flops_per_second = 14'400, .link_gbps = bits * 4 * 1e-9, .link_latency_us = 250'000});
  EXPECT_DOUBLE_EQ(hidden.transfer_seconds, 0.5);
  EXPECT_DOUBLE_EQ(hidden.seconds, 2);

  // Blocks of the other kernel are longer here: rows of 8 and 4 floats are whole units of 16 bytes, heads of
  // 5 rows whole ones of 8 rows.
  const double cuda_bits = 8 * static_cast<double>(cuda_block_bytes(problem.heads(), DType::f32, 5));
  EXPECT_EQ(cuda_bits, 8 * 2 * 8 * (8 + 4) * 4);
  const Estimate other =
      estimate(problem, hops, {.link_gbps = cuda_bits * 4 * 1e-9, .link_latency_us = 250'000}, Backend::cuda);
  EXPECT_DOUBLE_EQ(other.transfer_seconds, 0.5);
  EXPECT_DOUBLE_EQ(other.compute_seconds, 0) << "no peak is known";

  const Estimate exposed = estimate(problem, hops, {.flops_per_second = 14'400, .link_latency_us = 3e6});
  EXPECT_DOUBLE_EQ(exposed.transfer_seconds, 3);
  EXPECT_DOUBLE_EQ(exposed.seconds, 4);
}

// faults.md, thin link: 4 MiB over 1 Gbit/s is 34 ms.
TEST(Estimate, PredictsAThinLink) {
  Problem problem = problem_of(Mask::full(8192, 8192));
  problem.shape = {.batch = 1, .num_heads = 1, .num_heads_kv = 1, .head_dim = 64, .head_dim_v = 64};
  ASSERT_EQ(cpu_block_bytes(problem.heads(), DType::f32, 8192), std::size_t{4} << 20);
  const Estimate e = estimate(problem, {{.largest_pairs = 0, .largest_rows = 8192}, {}},
                              {.flops_per_second = 1, .link_gbps = 1});
  EXPECT_NEAR(e.seconds, 0.0336, 0.0001);
}

}  // namespace
}  // namespace ringattn::launch
