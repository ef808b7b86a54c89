// The ring's backward pass against float64: random problems, finite differences, and what must be zero.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu.h"
#include "tests/attention/case_check.h"
#include "tests/attention/random_problem.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

void expect_right(const RandomProblem& p, int ranks, const Inputs& in, const GradientAnswer& exact,
                  const GradientBound& bound, const RingOptions& options = {.threads = 1}) {
  const auto sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), ranks);
  const GradientAnswer got = run_threads_gradients(p.problem, sharding, in, options);
  EXPECT_LE(max_error(got.dq.data, exact.dq.data), bound.dq) << "dq, " << describe(p, ranks);
  EXPECT_LE(max_error(got.dk.data, exact.dk.data), bound.dk) << "dk, " << describe(p, ranks);
  EXPECT_LE(max_error(got.dv.data, exact.dv.data), bound.dv) << "dv, " << describe(p, ranks);
}

void expect_right(const RandomProblem& p, unsigned seed, const std::vector<int>& ranks,
                  const RingOptions& options = {.threads = 1}) {
  const Inputs in = random_inputs(p.problem, seed);
  const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
  const GradientBound bound = gradient_bound(p.problem, in, p.visible, exact);
  for (const int n : ranks) expect_right(p, n, in, exact, bound, options);
}

class RandomGradients : public testing::TestWithParam<unsigned> {};

TEST_P(RandomGradients, match_the_oracle_on_1_to_5_ranks) {
  for (unsigned seed = GetParam() * 10; seed < GetParam() * 10 + 10; ++seed)
    expect_right(random_problem(3000 + seed), seed, {1, 2, 3, 4, 5});
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomGradients, testing::Range(0u, 8u));

TEST(RandomTiles, gradients_match_the_oracle) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    RandomProblem p = random_problem(4000 + seed);
    const MaskCase mask = random_tiles(seed, p.problem.seqlen_q(), p.problem.seqlen_k());
    p.problem.mask = mask.mask;
    p.visible = mask.visible;
    expect_right(p, seed, {1, 3, 4});
  }
}

TEST(Gradients, are_right_on_every_instruction_set) {
  for (const std::string& isa : cpu_isas())
    for (unsigned seed = 5000; seed < 5006; ++seed)
      expect_right(random_problem(seed), seed, {3}, {.threads = 2, .isa = isa});
}

// By the dot-product instruction, if the machine has it, and widened.
TEST(Gradients, of_bf16_are_right_on_1_to_8_ranks) {
  for (const std::string& isa : cpu_isas()) {
    if (isa != cpu_isas().front() && isa != "AVX3") continue;
    for (unsigned seed = 2000; seed < 2006; ++seed) {
      RandomProblem p = random_problem(seed);
      p.problem.dtype = DType::bf16;
      expect_right(p, seed, {1, 2, 3, 5, 8}, {.threads = 1, .isa = isa});
    }
  }
}

TEST(Gradients, are_right_with_more_ranks_than_tokens) {
  const RandomProblem p{
      {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 20}, .mask = Mask::causal(3, 3)},
      causal_case(3, 3).visible,
      LayoutKind::contiguous};
  for (const LayoutKind layout : kLayouts) expect_right({p.problem, p.visible, layout}, 1, {4, 8});
}

TEST(Gradients, of_a_callers_own_segments_with_mixed_strides) {
  // 11 positions: even ones on rank 0, 1 5 9 on rank 1, 3 7 on rank 2.
  const auto custom = Layout::custom(11, {{{0, 6, 2}}, {{1, 3, 4}}, {{3, 2, 4}}});
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 20},
                        .mask = Mask::window(11, 11, {4, 1}),
                        .rope = {.pairing = Rope::Pairing::half}};
  const Inputs in = random_inputs(problem, 5);
  const GradientAnswer exact = oracle_gradients(problem, in, window_case(11, 11, {4, 1}).visible);
  const GradientAnswer got = run_threads_gradients(problem, {custom, custom}, in);
  for (const auto& [a, b] : {std::pair{&got.dq, &exact.dq}, {&got.dk, &exact.dk}, {&got.dv, &exact.dv}})
    EXPECT_LE(max_error(a->data, b->data), 2e-6);
}

// Nothing is visible, or nobody is there to see: every gradient is exactly 0, and every poisoned element is
// written.
TEST(Gradients, are_zero_where_nothing_is_seen) {
  const Mask masks[] = {Mask::tiles(13, 11, {}), Mask::full(5, 0), Mask::full(0, 7)};
  for (const Mask& mask : masks) {
    const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8, .head_dim_v = 5},
                          .mask = mask};
    for (const int ranks : {1, 2, 3}) {
      const GradientAnswer got =
          run_threads_gradients(problem, LayoutKind::zigzag, ranks, case_inputs(problem));
      for (const Tensor* x : {&got.dq, &got.dk, &got.dv})
        EXPECT_EQ(x->data, std::vector<double>(x->data.size(), 0.0)) << mask.name() << ", " << ranks;
    }
  }
}

double loss(const Problem& problem, const Inputs& in, const Visible& visible) {
  const Answer answer = oracle(problem, in, visible);
  double sum = 0;
  for (std::size_t i = 0; i < answer.out.data.size(); ++i) sum += answer.out.data[i] * in.dout.data[i];
  return sum;
}

// The oracle itself: central differences of its forward, a step of 1e-4 in double. Their error is step^2 / 6
// times a third derivative, and 1e-16 / step.
TEST(OracleGradients, are_the_difference_quotients_of_its_loss) {
  for (const auto pairing : {Rope::Pairing::none, Rope::Pairing::half, Rope::Pairing::interleaved})
    for (const double scale : {0.5, -0.3, 0.0}) {
      const auto mask = window_case(7, 5, {2, 1});
      const Problem problem{
          .shape = {.batch = 2, .num_heads = 4, .num_heads_kv = 2, .head_dim = 6, .head_dim_v = 3},
          .mask = mask.mask,
          .rope = {.pairing = pairing, .dim = 4, .position_offset = 11},
          .softmax_scale = scale};
      Inputs in = random_inputs(problem, 17);
      const GradientAnswer got = oracle_gradients(problem, in, mask.visible);
      constexpr double kStep = 1e-4;
      for (auto [x, gradient] : {std::pair{&in.q, &got.dq}, {&in.k, &got.dk}, {&in.v, &got.dv}})
        for (std::size_t i = 0; i < x->data.size(); ++i) {
          const double at = x->data[i];
          x->data[i] = at + kStep;
          const double above = loss(problem, in, mask.visible);
          x->data[i] = at - kStep;
          const double below = loss(problem, in, mask.visible);
          x->data[i] = at;
          ASSERT_NEAR(gradient->data[i], (above - below) / (2 * kStep), 1e-7)
              << i << ", scale " << scale << ", pairing " << static_cast<int>(pairing);
        }
    }
}

// A shift of all keys changes no weight, so the sum of dk over all keys is 0 in every column (cases.md, 0).
TEST(Gradients, of_all_keys_sum_to_zero_without_rope) {
  const Problem problem{.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 2, .head_dim = 20},
                        .mask = Mask::full(53, 97)};
  const Inputs in = random_inputs(problem, 3);
  for (const int ranks : {1, 2, 3, 4, 5}) {
    const GradientAnswer got = run_threads_gradients(problem, LayoutKind::striped, ranks, in);
    EXPECT_GT(max_magnitude(got.dk.data), 0.1);
    for (index_t b = 0; b < 2; ++b)
      for (index_t h = 0; h < 2; ++h)
        for (index_t d = 0; d < 20; ++d) {
          double sum = 0;
          for (index_t j = 0; j < 97; ++j) sum += got.dk.at(b, j, h, d);
          EXPECT_NEAR(sum, 0, 1e-5) << ranks << " ranks";
        }
  }
}

}  // namespace
}  // namespace ringattn::test
