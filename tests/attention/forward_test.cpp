// The ring's forward pass against the float64 oracle.
#include <gtest/gtest.h>

#include <map>

#include "kernels/cpu/cpu.h"
#include "tests/attention/random_problem.h"

namespace ringattn::test {
namespace {

void expect_right(const RandomProblem& p, int ranks, const Inputs& in, const Answer& exact,
                  const Bound& bound, const RingOptions& options = {.threads = 1}) {
  const auto sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), ranks);
  const Answer got = run_threads(p.problem, sharding, in, options);
  EXPECT_LE(max_error(got.out.data, exact.out.data), bound.out) << describe(p, ranks);
  EXPECT_LE(max_error(got.lse, exact.lse), bound.lse) << describe(p, ranks);
}

class RandomForward : public testing::TestWithParam<unsigned> {};

TEST_P(RandomForward, matches_the_oracle_on_1_to_5_ranks) {
  for (unsigned seed = GetParam() * 25; seed < GetParam() * 25 + 25; ++seed) {
    const RandomProblem p = random_problem(seed);
    const Inputs in = random_inputs(p.problem, seed);
    const Answer exact = oracle(p.problem, in, p.visible);
    const Bound bound = error_bound(p, in, exact);
    for (const int ranks : {1, 2, 3, 4, 5}) expect_right(p, ranks, in, exact, bound);
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomForward, testing::Range(0u, 8u));

TEST(Forward, is_right_on_every_instruction_set) {
  for (const std::string& isa : cpu_isas())
    for (unsigned seed = 1000; seed < 1012; ++seed) {
      const RandomProblem p = random_problem(seed);
      const Inputs in = random_inputs(p.problem, seed);
      const Answer exact = oracle(p.problem, in, p.visible);
      expect_right(p, 3, in, exact, error_bound(p, in, exact), {.threads = 1, .isa = isa});
    }
}

// By the dot-product instruction, if the machine has it, and widened.
TEST(Forward, of_bf16_is_right_on_1_to_8_ranks) {
  for (const std::string& isa : cpu_isas()) {
    if (isa != cpu_isas().front() && isa != "AVX3") continue;
    for (unsigned seed = 2000; seed < 2010; ++seed) {
      RandomProblem p = random_problem(seed);
      p.problem.dtype = DType::bf16;
      const Inputs in = random_inputs(p.problem, seed);
      const Answer exact = oracle(p.problem, in, p.visible);
      const Bound bound = error_bound(p, in, exact);
      for (const int ranks : {1, 2, 3, 5, 7, 8})
        expect_right(p, ranks, in, exact, bound, {.threads = 1, .isa = isa});
    }
  }
}

TEST(Forward, is_right_with_more_ranks_than_tokens) {
  for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 20},
                          .mask = Mask::causal(3, 3)};
    const Inputs in = case_inputs(problem);
    const Answer exact = oracle(problem, in, [](index_t i, index_t j) { return j <= i; });
    const Answer got = run_threads(problem, layout, 8, in);
    EXPECT_LE(max_error(got.out.data, exact.out.data), 1e-6) << name_of(layout);
    EXPECT_LE(max_error(got.lse, exact.lse), 1e-6) << name_of(layout);
  }
}

TEST(Forward, gives_zeros_and_minus_infinity_for_an_empty_key_sequence) {
  const Problem problem{.shape = {.head_dim = 8}, .mask = Mask::full(5, 0)};
  const Answer got = run_threads(problem, LayoutKind::contiguous, 2, case_inputs(problem));
  EXPECT_EQ(got.out.data, std::vector<double>(40, 0.0));
  EXPECT_EQ(got.lse, std::vector<double>(5, -std::numeric_limits<double>::infinity()));
}

TEST(Forward, takes_a_callers_own_segments_with_mixed_strides) {
  // 11 positions: even ones on rank 0, 1 5 9 on rank 1, 3 7 on rank 2.
  const auto custom = Layout::custom(11, {{{0, 6, 2}}, {{1, 3, 4}}, {{3, 2, 4}}});
  const RandomProblem p{
      {.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 20}, .mask = Mask::window(11, 11, {4, 1})},
      window_case(11, 11, {4, 1}).visible,
      LayoutKind::custom};
  const Inputs in = random_inputs(p.problem, 5);
  const Answer exact = oracle(p.problem, in, p.visible);
  const Answer got = run_threads(p.problem, {custom, custom}, in);
  EXPECT_LE(max_error(got.out.data, exact.out.data), 1e-6);
  EXPECT_LE(max_error(got.lse, exact.lse), 1e-6);
}

TEST(Forward, takes_a_callers_own_tiles) {
  // Prefix-LM over 23 tokens: everybody sees the first 7, the rest is causal.
  const Mask mask = Mask::tiles(23, 23, {{{0, 23}, {0, 7}, {}}, {{7, 23}, {7, 23}, {-kUnbounded, 0}}});
  const Problem problem{.shape = {.num_heads = 3, .num_heads_kv = 1, .head_dim = 63}, .mask = mask};
  const Inputs in = random_inputs(problem, 6);
  const Answer exact = oracle(problem, in, [](index_t i, index_t j) { return j < 7 || (i >= 7 && j <= i); });
  for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Answer got = run_threads(problem, layout, 3, in);
    EXPECT_LE(max_error(got.out.data, exact.out.data), 1e-6) << name_of(layout);
  }
}

TEST(Forward, has_the_same_bits_for_any_threads_overlap_or_repetition) {
  const RandomProblem p{{.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 2, .head_dim = 80},
                         .mask = Mask::causal(611, 611),
                         .rope = {.pairing = Rope::Pairing::half}},
                        {},
                        LayoutKind::zigzag};
  const Inputs in = random_inputs(p.problem, 7);
  const auto sharding = Sharding::make(p.layout, 611, 611, 3);
  const Answer first = run_threads(p.problem, sharding, in, {.threads = 1});
  const RingOptions others[] = {
      {.threads = 1}, {.threads = 2}, {.threads = 3}, {.threads = 2, .mode = Mode::blocking}};
  for (const RingOptions& options : others) {
    const Answer again = run_threads(p.problem, sharding, in, options);
    EXPECT_TRUE(same_bits(first.out.data, again.out.data)) << options.threads << " " << name_of(options.mode);
    EXPECT_TRUE(same_bits(first.lse, again.lse)) << options.threads << " " << name_of(options.mode);
  }
}

// Found on real input (a head of SmolLM2 that looks nearby): the block that a rank holds itself comes first
// and has nearly all the weight; the thousands of far keys that come later are each below half an ulp of the
// sum so far. Added one by one to it they would all be lost, 4.5e-5 of the sum here.
TEST(Forward, a_heavy_first_block_does_not_drown_many_light_keys) {
  const index_t queries = 64, keys = 8192;
  for (const bool heavy_at_end : {true, false}) {
    const RandomProblem p{{.shape = {.head_dim = 4}, .mask = Mask::full(queries, keys), .softmax_scale = 1.0},
                          full_case(queries, keys).visible,
                          LayoutKind::contiguous};
    Inputs in = random_inputs(p.problem, 9, 0.1);
    for (index_t i = 0; i < queries; ++i) in.q.at(0, i, 0, 0) = 1;
    for (index_t j = 0; j < keys; ++j) {
      const bool heavy = (j >= keys / 2) == heavy_at_end;
      in.k.at(0, j, 0, 0) = heavy ? 10 : 0;
      for (index_t d = 0; d < 4; ++d) in.v.at(0, j, 0, d) += heavy ? 1 : 50;
    }
    const Answer exact = oracle(p.problem, in, p.visible);
    for (const int ranks : {1, 2, 4}) {
      const Answer got = run_threads(p.problem, p.layout, ranks, in);
      EXPECT_LE(max_error(got.out.data, exact.out.data), 4e-6)
          << ranks << " ranks, heavy end " << heavy_at_end;
      EXPECT_LE(max_error(got.lse, exact.lse), 4e-6) << ranks << " ranks, heavy end " << heavy_at_end;
    }
  }
}

// A NaN in one key: exactly the rows that see it become NaN, all others keep their bits, wherever it is.
TEST(Forward, keeps_nan_and_does_not_spread_it) {
  const index_t length = 157;
  for (const auto& m : {causal_case(length, length), window_case(length, length, {9, 4})})
    for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped})
      for (const index_t where : {0, 63, 64, 101, 156})
        for (const bool in_v : {false, true}) {
          const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 20}, .mask = m.mask};
          Inputs in = random_inputs(problem, 8);
          const Answer clean = run_threads(problem, layout, 3, in);
          (in_v ? in.v : in.k).at(0, where, 0, 3) = std::nan("");
          const Answer got = run_threads(problem, layout, 3, in);
          for (index_t i = 0; i < length; ++i)
            for (index_t h = 0; h < 2; ++h) {
              const double value = got.out.at(0, i, h, 3);
              if (m.visible(i, where)) {
                EXPECT_TRUE(std::isnan(value)) << i << " sees " << where;
              } else {
                EXPECT_EQ(value, clean.out.at(0, i, h, 3)) << i << " does not see " << where;
              }
            }
        }
}

}  // namespace
}  // namespace ringattn::test
