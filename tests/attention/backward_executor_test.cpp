// The backward ring loop alone: the reference kernel in float64, ranks as threads, no packed layouts, no
// SIMD.
#include <gtest/gtest.h>

#include "comm/threads.h"
#include "kernels/reference/kernel.h"
#include "src/cost.h"
#include "tests/attention/case_check.h"
#include "tests/attention/random_problem.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

using namespace std::chrono_literals;

// Forward and backward of one rank, as RingAttention does it but without RoPE.
void run_rank_by_hand(Communicator& comm, const Problem& problem, const Sharding& sharding, Mode mode,
                      const Inputs& in, GradientAnswer& answer) {
  const Plan plan(problem, sharding, comm.rank());
  const auto kernel = make_reference_kernel({.shape = problem.heads(),
                                             .dtype = problem.dtype,
                                             .softmax_scale = problem.scale(),
                                             .q_rows = plan.q_rows()});
  RankTensors mine(problem, sharding, comm.rank(), in);
  const std::size_t count = plan.hops().size() > 1 ? 2 : 1;
  Slots slots;
  kernel->reserve(Pass::backward);
  for (std::size_t i = 0; i < count; ++i) {
    slots.block[i] = kernel->allocate(kernel->block_bytes(sharding.k.max_rows()));
    slots.gradient[i] = kernel->allocate(kernel->gradient_bytes(sharding.k.max_rows()));
    std::ranges::fill(slots.gradient[i].bytes(), std::byte{0xFF});  // what a call before has left
  }
  const auto own = slots.block[0].bytes().first(kernel->block_bytes(plan.k_rows()));
  Timing timing;
  kernel->load_queries(mine.q, {});
  kernel->load_block(mine.k, mine.v, {}, own);
  run_forward(plan, *kernel, comm, slots, mine.out, mine.lse, mode, 20s, timing);

  const SentCount before = comm.sent();
  kernel->load_block(mine.k, mine.v, {}, own);
  const BackwardRows rows{
      .load_rows =
          [&](const Poll& poll) {
            kernel->load_rows(mine.q, {}, mine.dout, as_const(mine.out), as_const(mine.lse), poll);
          },
      .load_block = [&](std::span<std::byte> block) { kernel->load_block(mine.k, mine.v, {}, block); }};
  const auto sums = run_backward(plan, *kernel, comm, slots, rows, mode, 20s, timing);
  EXPECT_EQ(sums.size(), kernel->gradient_bytes(plan.k_rows()));
  EXPECT_EQ(timing.hops.size(), plan.hops().size());
  kernel->finish_rows(mine.dq, {});
  kernel->finish_gradients(sums, mine.dk, mine.dv, {});
  mine.collect(answer);

  const Traffic planned = backward_traffic(
      plan, [&](index_t r) { return kernel->block_bytes(r); },
      [&](index_t r) { return kernel->gradient_bytes(r); });
  EXPECT_EQ(comm.sent().bytes - before.bytes, planned.bytes_sent);
  EXPECT_EQ(comm.sent().messages - before.messages, planned.messages_sent);
}

GradientAnswer run_by_hand(const Problem& problem, const Sharding& sharding, Mode mode, const Inputs& in) {
  GradientAnswer answer = empty_gradients(problem);
  run_thread_ranks(sharding.ranks(), [&](const std::shared_ptr<Communicator>& comm) {
    run_rank_by_hand(*comm, problem, sharding, mode, in, answer);
  });
  return answer;
}

// out and lse are rounded to fp32 between the passes: 2^-24 each, which a delta that cancels shows as it is.
void expect_exact(const MaskCase& mask, LayoutKind layout, int ranks) {
  const Problem problem{.shape = {.num_heads = 4, .num_heads_kv = 2, .head_dim = 5, .head_dim_v = 3},
                        .mask = mask.mask};
  const Inputs in = random_inputs(problem, 21);
  const GradientAnswer exact = oracle_gradients(problem, in, mask.visible);
  const auto sharding = Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), ranks);
  const GradientAnswer got = run_by_hand(problem, sharding, Mode::overlap, in);
  for (const auto& [mine, right] :
       {std::pair{&got.dq, &exact.dq}, {&got.dk, &exact.dk}, {&got.dv, &exact.dv}})
    EXPECT_LE(max_error(mine->data, right->data), 3e-6)
        << mask.mask.name() << ", " << name_of(layout) << ", " << ranks << " ranks";
  EXPECT_TRUE(same_gradients(got, run_by_hand(problem, sharding, Mode::blocking, in)));
}

TEST(BackwardRing, is_right_on_1_to_7_ranks_in_every_layout) {
  for (const int ranks : {1, 2, 3, 4, 5, 6, 7})
    for (const LayoutKind layout : kLayouts) {
      expect_exact(full_case(23, 29), layout, ranks);
      expect_exact(causal_case(29, 29), layout, ranks);
    }
}

// Contiguous windows cut hops, so that gradients go home over more than one rank at once: by every number of
// hops, from the own block alone (window 0) to all but one.
TEST(BackwardRing, comes_straight_home_from_any_hop) {
  for (const index_t left : {0, 1, 5, 11, 17, 23})
    for (const int ranks : {2, 3, 5, 6}) {
      expect_exact(window_case(31, 31, {left, 0}), LayoutKind::contiguous, ranks);
      expect_exact(window_case(31, 31, {left, 2}), LayoutKind::contiguous, ranks);
    }
}

TEST(BackwardRing, turns_with_ranks_that_hold_nothing) {
  for (const LayoutKind layout : kLayouts) {
    expect_exact(full_case(2, 3), layout, 6);
    expect_exact(causal_case(3, 3), layout, 5);
    expect_exact(full_case(17, 1), layout, 4);
  }
}

}  // namespace
}  // namespace ringattn::test
