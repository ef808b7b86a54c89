// The oracle against values known by other means, and the reference kernel against the oracle.
#include "kernels/reference/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/reference/kernel.h"
#include "src/error.h"
#include "tests/kernels/support.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr HeadShape kOne{1, 1, 1, 1, 1};

bool always(index_t, index_t) { return true; }

// Case A19, test 1: two keys with logit 0. A base-2 result would be 1.
TEST(Oracle, LseIsTheNaturalLogarithm) {
  const std::vector<double> q{0}, k{0, 0}, v{1, 2};
  const ReferenceResult r = reference_attention(kOne, 1, 2, 1, always, q, k, v);
  EXPECT_NEAR(r.lse[0], 0.693147180560, 1e-12);
  EXPECT_NEAR(r.out[0], 1.5, 1e-15);
}

// Case A23.
TEST(Oracle, DoesNotOverflowWhereOneKeyDwarfsTheRest) {
  const std::vector<double> q{1, 1, 1, 1}, k{0, 0, 200, 200}, v{1, 2, 3, 5}, negated{0, 0, -200, -200};
  ReferenceResult r = reference_attention(kOne, 4, 4, 1, always, q, k, v);
  EXPECT_NEAR(r.out[0], 4.0, 1e-12);
  EXPECT_NEAR(r.lse[3], 200.693147181, 1e-9);
  r = reference_attention(kOne, 4, 4, 1, always, q, negated, v);
  EXPECT_NEAR(r.out[2], 1.5, 1e-12);
  EXPECT_NEAR(r.lse[0], 0.693147181, 1e-9);
}

// Case A35, D = 20: digests of generator G computed elsewhere.
TEST(Oracle, ReproducesThePublishedDigest) {
  const Problem p = problem_of({1, 1, 1, 20, 20}, DType::f32, 8, 8, full_tiles(8, 8));
  const Answer a = oracle(p, generated_inputs(p));
  double sum = 0, magnitude = 0, lse = 0;
  for (const double x : a.out) sum += x, magnitude += std::fabs(x);
  for (const double x : a.lse) lse += x;
  EXPECT_NEAR(sum, 2.725795429301, 1e-11);
  EXPECT_NEAR(magnitude, 26.223095946226, 1e-11);
  EXPECT_NEAR(lse, 16.509300851487, 1e-11);
}

TEST(Oracle, RowThatSeesNothingIsZero) {
  const std::vector<double> q{1, 1}, k{2}, v{std::nan("")};
  const ReferenceResult r = reference_attention(
      kOne, 2, 1, 1, [](index_t i, index_t) { return i == 1; }, q, k, v);
  EXPECT_EQ(r.out[0], 0.0);
  EXPECT_EQ(r.lse[0], -kInf);
  EXPECT_TRUE(std::isnan(r.out[1]));
  EXPECT_EQ(r.lse[1], 2.0);
}

TEST(Oracle, RefusesSpansOfTheWrongSize) {
  const std::vector<double> q{1}, k{1, 2}, v{1};
  EXPECT_THROW(reference_attention(kOne, 1, 2, 1, always, q, k, v), UsageError);
  EXPECT_THROW(reference_attention(kOne, 2, 2, 1, always, q, k, k), UsageError);
}

// The row form sums in another order and rescales as it goes: only the result is the same.
TEST(Oracle, RowByRowEqualsDense) {
  const Problem p = problem_of({1, 1, 1, 13, 5}, DType::f32, 37, 211, window_tiles(37, 211, 60, 20));
  Inputs in = random_inputs(p, 3, 40);  // large logits: the maximum rises often
  const Answer dense = oracle(p, in);
  const std::vector<double> q = in.q.doubles(), k = in.k.doubles(), v = in.v.doubles();
  for (index_t i = 0; i < p.q_rows; ++i) {
    // The window in two pieces, an empty range between them.
    const Range seen{std::max<index_t>(0, 174 + i - 60), std::min<index_t>(211, 174 + i + 21)};
    const Range keys[] = {{seen.begin, seen.begin + 7}, {50, 50}, {seen.begin + 7, seen.end}};
    index_t previous = -1;
    const ReferenceRow row =
        reference_row(std::span(q).subspan(static_cast<std::size_t>(i * 13), 13), p.scale, 5, keys,
                      [&](index_t j, std::span<double> kj, std::span<double> vj) {
                        EXPECT_GT(j, previous);
                        previous = j;
                        std::copy_n(&k[static_cast<std::size_t>(j * 13)], 13, kj.begin());
                        std::copy_n(&v[static_cast<std::size_t>(j * 5)], 5, vj.begin());
                      });
    EXPECT_NEAR(row.lse, dense.lse[static_cast<std::size_t>(i)], 1e-12 * std::fabs(row.lse));
    for (std::size_t e = 0; e < 5; ++e)
      EXPECT_NEAR(row.out[e], dense.out[static_cast<std::size_t>(i) * 5 + e], 1e-12);
  }
}

TEST(Oracle, RowFollowsIeee) {
  const double q[] = {1.0};
  const auto row = [&](std::vector<double> scores, double value) {
    const Range keys[] = {{0, static_cast<index_t>(scores.size())}};
    return reference_row(q, 1, 1, keys, [&](index_t j, std::span<double> k, std::span<double> v) {
      k[0] = scores[static_cast<std::size_t>(j)];
      v[0] = value;
    });
  };
  EXPECT_EQ(row({}, 1).lse, -kInf);
  EXPECT_EQ(row({-kInf, -kInf}, 1).out[0], 0.0);
  EXPECT_EQ(row({-kInf, 3}, 2).out[0], 2.0);
  EXPECT_EQ(row({-kInf, 3}, 2).lse, 3.0);
  EXPECT_TRUE(std::isnan(row({3, kInf, 3}, 2).out[0]));
  EXPECT_TRUE(std::isnan(row({std::nan(""), 3}, 2).lse));
}

TEST(ReferenceKernel, AgreesWithTheOracle) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(text(dtype));
    Problem p = problem_of({2, 6, 2, 10, 7}, dtype, 31, 47, {});
    p.tiles = {{{0, 17}, {0, 30}, {-5, 12}}, {{17, 31}, {0, 47}, {.hi = 3}}};
    p.q_rotation = test_rotation(10, true, 16);
    p.k_rotation = test_rotation(10, true, 0);
    const Inputs in = random_inputs(p, 12);
    const auto kernel = make_reference_kernel(config_of(p));
    const Result once = run(*kernel, p, in), twice = run(*kernel, p, in, {{30, 47}, {0, 30}});
    expect_accurate(once, p, in);
    expect_accurate(twice, p, in);
    const Answer truth = oracle(p, in);
    for (std::size_t i = 0; i < truth.lse.size(); ++i)
      EXPECT_FLOAT_EQ(once.lse[i], static_cast<float>(truth.lse[i]));
  }
}

TEST(ReferenceKernel, RefusesWhatItCannotDo) {
  const Problem p = problem_of({1, 1, 1, 4, 4}, DType::f32, 3, 3, full_tiles(3, 3));
  EXPECT_THROW(make_reference_kernel(config_of(p, "AVX3")), UsageError);
  const auto kernel = make_reference_kernel(config_of(p));
  EXPECT_EQ(kernel->name(), "reference");
  EXPECT_EQ(kernel->block_bytes(0), 0u);
  const Buffer block = kernel->allocate(kernel->block_bytes(3));
  EXPECT_THROW(kernel->attend(full_tiles(4, 3), block.bytes(), 3, {}), UsageError);
  EXPECT_THROW(kernel->attend(full_tiles(3, 3), block.bytes().first(8), 3, {}), UsageError);
}

}  // namespace
}  // namespace ringattn::test
