#include "launch/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/self.h"
#include "comm/threads.h"
#include "kernels/reference/attention.h"
#include "launch/element.h"
#include "launch/generator.h"
#include "launch/spoil.h"
#include "launch/steps.h"
#include "launch/tensors.h"

namespace ringattn::launch {
namespace {

using namespace std::chrono_literals;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// 2 batches, 6 query heads on 2 KV heads, 11 queries, 13 keys, 5 and 3 elements: no two extents equal.
Problem problem_of(DType dtype) {
  return {.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 2, .head_dim = 5, .head_dim_v = 3},
          .dtype = dtype,
          .mask = Mask::causal(11, 13),
          .rope = {},
          .softmax_scale = {}};
}

ReadHead generated(TensorId tensor, index_t dim, DType dtype) {
  return [=](index_t b, index_t head, Range positions, std::span<float> to) {
    for (index_t i = 0; i < positions.count(); ++i) {
      const auto row = to.subspan(static_cast<std::size_t>(i * dim), static_cast<std::size_t>(dim));
      generate_row(1, tensor, b, positions.begin + i, head, dtype, row);
    }
  };
}

CheckInputs inputs_of(const Problem& p) {
  return {.q = generated(TensorId::q, p.shape.head_dim, p.dtype),
          .k = generated(TensorId::k, p.shape.head_dim, p.dtype),
          .v = generated(TensorId::v, p.shape.head_dim_v, p.dtype)};
}

// A whole tensor as doubles, [batch, rows, heads, dim].
std::vector<double> whole(const ReadHead& read, index_t batch, index_t rows, index_t heads, index_t dim) {
  std::vector<double> all(static_cast<std::size_t>(batch * rows * heads * dim));
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (index_t b = 0; b < batch; ++b) {
    for (index_t i = 0; i < rows; ++i) {
      for (index_t h = 0; h < heads; ++h) {
        read(b, h, {i, i + 1}, row);
        std::copy(row.begin(), row.end(), all.begin() + ((b * rows + i) * heads + h) * dim);
      }
    }
  }
  return all;
}

// A rank's output, right to the last bit of its type: the dense reference rounded once.
ShardTensors right_output(const Problem& p, const Sharding& sharding, int rank) {
  const HeadShape& s = p.shape;
  const CheckInputs inputs = inputs_of(p);
  const auto result = reference_attention(
      s, p.seqlen_q(), p.seqlen_k(), p.scale(),
      [&](index_t i, index_t j) { return j <= i + p.seqlen_k() - p.seqlen_q(); },
      whole(inputs.q, s.batch, p.seqlen_q(), s.num_heads, s.head_dim),
      whole(inputs.k, s.batch, p.seqlen_k(), s.num_heads_kv, s.head_dim),
      whole(inputs.v, s.batch, p.seqlen_k(), s.num_heads_kv, s.head_dim_v));
  ShardTensors t = allocate_shard(p, sharding, rank);
  for (index_t b = 0; b < s.batch; ++b) {
    for (index_t row = 0; row < sharding.q.rows(rank); ++row) {
      const index_t i = sharding.q.position(rank, row);
      for (index_t h = 0; h < s.num_heads; ++h) {
        for (index_t e = 0; e < s.head_dim_v; ++e) {
          const index_t from = ((b * p.seqlen_q() + i) * s.num_heads + h) * s.head_dim_v + e;
          const auto to = static_cast<std::size_t>(t.views.out.offset(b, row, h) + e) * size_of(p.dtype);
          store_element(p.dtype, static_cast<float>(result.out[static_cast<std::size_t>(from)]),
                        t.out.data() + to);
        }
        const index_t from = (b * s.num_heads + h) * p.seqlen_q() + i;
        const index_t to = (b * s.num_heads + h) * sharding.q.rows(rank) + row;
        t.lse[static_cast<std::size_t>(to)] = static_cast<float>(result.lse[static_cast<std::size_t>(from)]);
      }
    }
  }
  return t;
}

using Spoil = std::function<void(int rank, const CheckPlan&, const Sharding&, ShardTensors&)>;

// The check over ranks as threads; every rank must come to the same outcome.
CheckOutcome outcome_of(const Problem& p, int ranks, LayoutKind kind, const Spoil& spoil, index_t rows = 16) {
  const Sharding sharding = Sharding::make(kind, p.seqlen_q(), p.seqlen_k(), ranks);
  std::vector<CheckOutcome> outcomes(static_cast<std::size_t>(ranks));
  ringattn::run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const CheckPlan plan = plan_check(p, rows);
    ShardTensors t = right_output(p, sharding, comm->rank());
    if (spoil) spoil(comm->rank(), plan, sharding, t);
    outcomes[static_cast<std::size_t>(comm->rank())] = check_output(
        *comm, p, sharding, plan, inputs_of(p), {.out = as_const(t.views.out), .lse = t.views.lse}, 10s);
  });
  for (const CheckOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.passed, outcomes[0].passed);
    EXPECT_EQ(outcome.text, outcomes[0].text);
  }
  return outcomes[0];
}

Spoil with(OutputFault fault) {
  return [=](int rank, const CheckPlan& plan, const Sharding& sharding, ShardTensors& t) {
    spoil_result({.output = fault, .sleeps = {}, .transfers = {}, .actions = {}, .text = {}}, plan, {},
                 sharding, rank, t);
  };
}

class CheckOfTypes : public testing::TestWithParam<DType> {};

TEST_P(CheckOfTypes, PassesWhatIsRightOnAnyRanksAndLayout) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    for (const int ranks : {1, 2, 3, 5}) {
      const CheckOutcome outcome = outcome_of(problem_of(GetParam()), ranks, kind, {});
      EXPECT_TRUE(outcome.passed) << outcome.text;
      EXPECT_EQ(outcome.rows, 16);
      EXPECT_EQ(outcome.heads_per_row, 6);
      EXPECT_GE(outcome.out.worst.error, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CheckOfTypes, testing::Values(DType::f32, DType::bf16, DType::f16));

// Case A28: a NaN, an Inf, 0.01 too much, all zeros: four failures that name the index and both values.
TEST(Check, FindsANaN) {
  const CheckOutcome outcome =
      outcome_of(problem_of(DType::f32), 3, LayoutKind::zigzag, with(OutputFault::nan));
  EXPECT_FALSE(outcome.passed);
  EXPECT_TRUE(std::isnan(outcome.out.worst.got));
  EXPECT_NE(outcome.text.find("out[batch 1, row 10, head 3, element 0] is nan"), std::string::npos)
      << outcome.text;
  EXPECT_NE(outcome.text.find("float64 reference"), std::string::npos) << outcome.text;
}

TEST(Check, FindsAnInfinity) {
  const CheckOutcome outcome =
      outcome_of(problem_of(DType::f16), 3, LayoutKind::striped, with(OutputFault::inf));
  EXPECT_FALSE(outcome.passed);
  EXPECT_NE(outcome.text.find("is inf"), std::string::npos) << outcome.text;
}

TEST(Check, FindsAnElementThatIsOffByAHundredth) {
  const CheckOutcome outcome =
      outcome_of(problem_of(DType::f32), 1, LayoutKind::zigzag, with(OutputFault::off));
  EXPECT_FALSE(outcome.passed);
  EXPECT_NEAR(outcome.out.worst.error, 0.01, 1e-6);
}

TEST(Check, FindsThatAllIsZero) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_FALSE(outcome_of(problem_of(dtype), 2, LayoutKind::zigzag, with(OutputFault::zero)).passed);
  }
}

TEST(Check, FindsRowsThatNobodyWrote) {
  const Spoil forget = [](int rank, const CheckPlan&, const Sharding&, ShardTensors& t) {
    if (rank == 1) std::ranges::fill(t.out, std::byte{0xFF});
  };
  EXPECT_FALSE(outcome_of(problem_of(DType::bf16), 2, LayoutKind::striped, forget).passed);
}

TEST(Check, FindsAWrongLse) {
  for (const float wrong : {0.01f, std::numeric_limits<float>::quiet_NaN()}) {
    const Spoil lse = [=](int, const CheckPlan&, const Sharding&, ShardTensors& t) { t.lse.back() += wrong; };
    const CheckOutcome outcome = outcome_of(problem_of(DType::f32), 1, LayoutKind::zigzag, lse);
    EXPECT_FALSE(outcome.passed);
    EXPECT_TRUE(outcome.out.passed);
    EXPECT_NE(outcome.text.find("lse[batch 1, row 10, head 5]"), std::string::npos) << outcome.text;
  }
}

// Heads in the wrong order give finite, plausible numbers.
TEST(Check, FindsHeadsThatAreSwapped) {
  const Spoil swap = [](int, const CheckPlan&, const Sharding&, ShardTensors& t) {
    const std::size_t row = 6 * 3 * 4;
    for (std::size_t at = 0; at < t.out.size(); at += row) {
      std::swap_ranges(t.out.begin() + static_cast<std::ptrdiff_t>(at),
                       t.out.begin() + static_cast<std::ptrdiff_t>(at + 12),
                       t.out.begin() + static_cast<std::ptrdiff_t>(at + 12));
    }
  };
  EXPECT_FALSE(outcome_of(problem_of(DType::f32), 1, LayoutKind::zigzag, swap).passed);
}

// A query that sees nothing: out 0 and lse -inf are right, anything else is not.
TEST(Check, KnowsRowsThatSeeNothing) {
  Problem p = problem_of(DType::f32);
  const std::vector<index_t> cu{0, 0};
  p.mask = Mask::documents(2, 2, cu, cu, {-1, 0});
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 2, 2, 1);
  const auto comm = make_self_communicator();
  for (const bool right : {true, false}) {
    ShardTensors t = allocate_shard(p, sharding, 0);
    std::ranges::fill(t.out, std::byte{0});
    std::ranges::fill(t.lse, right ? -std::numeric_limits<float>::infinity() : 0.0f);
    const CheckOutcome outcome = check_output(*comm, p, sharding, plan_check(p, 16), inputs_of(p),
                                              {.out = as_const(t.views.out), .lse = t.views.lse}, 10s);
    EXPECT_EQ(outcome.passed, right) << outcome.text;
  }
}

TEST(Check, NothingComparedIsNoPass) {
  EXPECT_FALSE(outcome_of(problem_of(DType::f32), 1, LayoutKind::zigzag, {}, 0).passed);
}

TEST(Difference, IsNeverNaN) {
  EXPECT_EQ(difference(1.5, 1.0), 0.5);
  EXPECT_EQ(difference(kNaN, 1), kInfinity);
  EXPECT_EQ(difference(1, kNaN), kInfinity);
  EXPECT_EQ(difference(kNaN, kNaN), 0);
  EXPECT_EQ(difference(kInfinity, 1), kInfinity);
  EXPECT_EQ(difference(-kInfinity, kInfinity), kInfinity);
  EXPECT_EQ(difference(-kInfinity, -kInfinity), 0);
  EXPECT_EQ(difference(kInfinity, kNaN), kInfinity);
}

TEST(ErrorBound, IsTwiceTheNaiveErrorOrWhatTheTypeCannotHold) {
  EXPECT_DOUBLE_EQ(error_bound({.type = DType::f32}, 1e-3, 2), 2e-3 + 2e-6);
  EXPECT_DOUBLE_EQ(error_bound({.type = DType::bf16}, 0, 2), 2 * 0x1p-8 + 2e-6);
  EXPECT_DOUBLE_EQ(error_bound({.type = DType::f16}, 0, 2), 2 * 0x1p-11 + 2e-6);
  // Gradients: three times, and 1e-6 of what was added up where that is more than what is left of it.
  EXPECT_DOUBLE_EQ(error_bound({.type = DType::f32, .naive_errors = 3}, 1e-3, 2, 5), 3e-3 + 5e-6);
}

}  // namespace
}  // namespace ringattn::launch
