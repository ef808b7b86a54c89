// The gradient oracle against finite differences of the forward oracle, and the reference kernel against it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/reference/kernel.h"
#include "src/error.h"
#include "tests/kernels/backward_support.h"

namespace ringattn::test {
namespace {

// d(sum(dout * out)) / dx of one element, by the central difference of fourth order: with h = 1e-3 its error
// is about h^4 = 1e-12 of the fifth derivative, and rounding adds 1e-16 / h.
template <class Loss>
double difference(std::vector<double>& x, std::size_t at, const Loss& loss) {
  const double h = 1e-3, x0 = x[at];
  const auto shifted = [&](double by) {
    x[at] = x0 + by;
    const double value = loss();
    x[at] = x0;
    return value;
  };
  return (8 * (shifted(h) - shifted(-h)) - (shifted(2 * h) - shifted(-2 * h))) / (12 * h);
}

TEST(GradientOracle, AgreesWithFiniteDifferences) {
  for (const double scale : {0.4, -0.7, 0.0})
    for (const auto& tiles : {full_tiles(7, 11), causal_tiles(7, 11), window_tiles(7, 11, 3, 1),
                              std::vector<Tile>{{{0, 3}, {0, 5}, {}}, {{4, 7}, {5, 11}, {-1, 3}}}}) {
      Problem p = problem_of({2, 6, 2, 3, 5}, DType::f32, 7, 11, tiles);
      p.scale = scale;
      const Inputs in = random_inputs(p, 5);
      const std::vector<double> dout = random_tensor(p.dtype, p.out_shape(), 9).doubles();
      std::vector<double> q = in.q.doubles(), k = in.k.doubles(), v = in.v.doubles();
      const auto visible = [&](index_t i, index_t j) { return p.visible(i, j); };
      const auto loss = [&] {
        const ReferenceResult r = reference_attention(p.shape, p.q_rows, p.k_rows, scale, visible, q, k, v);
        double sum = 0;
        for (std::size_t i = 0; i < dout.size(); ++i) sum += dout[i] * r.out[i];
        return sum;
      };
      const ReferenceGradients g =
          reference_gradients(p.shape, p.q_rows, p.k_rows, scale, visible, q, k, v, dout);
      ASSERT_EQ(g.dq.size(), q.size());
      ASSERT_EQ(g.dk.size(), k.size());
      ASSERT_EQ(g.dv.size(), v.size());
      for (std::size_t i = 0; i < q.size(); i += 7) ASSERT_NEAR(g.dq[i], difference(q, i, loss), 1e-9) << i;
      for (std::size_t i = 0; i < k.size(); i += 5) ASSERT_NEAR(g.dk[i], difference(k, i, loss), 1e-9) << i;
      for (std::size_t i = 0; i < v.size(); i += 5) ASSERT_NEAR(g.dv[i], difference(v, i, loss), 1e-9) << i;
    }
}

// One query, keys with logits 0 and log 3: p = 1/4, 3/4. dout 1, v = 2, 6: out = 5, ds = -3/4, 3/4.
TEST(GradientOracle, AgreesWithPaper) {
  const std::vector<double> q{1}, k{0, std::log(3.0)}, v{2, 6}, dout{1};
  const ReferenceGradients g = reference_gradients(
      {1, 1, 1, 1, 1}, 1, 2, 1, [](index_t, index_t) { return true; }, q, k, v, dout);
  EXPECT_NEAR(g.dv[0], 0.25, 1e-15);
  EXPECT_NEAR(g.dv[1], 0.75, 1e-15);
  EXPECT_NEAR(g.dk[0], -0.75, 1e-15);
  EXPECT_NEAR(g.dk[1], 0.75, 1e-15);
  EXPECT_NEAR(g.dq[0], 0.75 * std::log(3.0), 1e-15);
}

TEST(GradientOracle, RowThatSeesNothingAddsNothing) {
  const double nan = std::nan("");
  const std::vector<double> q{nan, 1}, k{2}, v{3}, dout{nan, 1};
  const ReferenceGradients g = reference_gradients(
      {1, 1, 1, 1, 1}, 2, 1, 1, [](index_t i, index_t) { return i == 1; }, q, k, v, dout);
  EXPECT_EQ(g.dq[0], 0.0);
  EXPECT_EQ(g.dv[0], 1.0);
  EXPECT_EQ(g.dk[0], 0.0);  // with one key its weight is 1 whatever it is
}

TEST(GradientOracle, RefusesSpansOfTheWrongSize) {
  const std::vector<double> one{1}, two{1, 2};
  const auto run = [&](const auto& q, const auto& k, const auto& v, const auto& dout) {
    return reference_gradients(
        {1, 1, 1, 1, 1}, 1, 1, 1, [](index_t, index_t) { return true; }, q, k, v, dout);
  };
  EXPECT_NO_THROW(run(one, one, one, one));
  EXPECT_THROW(run(two, one, one, one), UsageError);
  EXPECT_THROW(run(one, two, one, one), UsageError);
  EXPECT_THROW(run(one, one, two, one), UsageError);
  EXPECT_THROW(run(one, one, one, two), UsageError);
}

TEST(ReferenceKernel, BackwardAgreesWithTheOracle) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    SCOPED_TRACE(text(dtype));
    Problem p = problem_of({2, 6, 2, 10, 7}, dtype, 31, 47, {});
    p.tiles = {{{0, 17}, {0, 30}, {-5, 12}}, {{17, 31}, {0, 47}, {.hi = 3}}};
    p.q_rotation = test_rotation(10, true, 16);
    p.k_rotation = test_rotation(10, true, 0);
    const BackwardInputs in = random_backward_inputs(p, 12);
    const auto kernel = make_reference_kernel(config_of(p));
    expect_accurate(run_backward(*kernel, p, in), p, in);
    expect_accurate(run_backward(*kernel, p, in, {{30, 47}, {0, 30}}), p, in);
  }
}

TEST(ReferenceKernel, BackwardRefusesWhatItCannotDo) {
  const Problem p = problem_of({1, 1, 1, 4, 4}, DType::f32, 3, 3, full_tiles(3, 3));
  const BackwardInputs in = random_backward_inputs(p, 1);
  const auto kernel = make_reference_kernel(config_of(p));
  const Buffer block = kernel->allocate(kernel->block_bytes(3)),
               sums = kernel->allocate(kernel->gradient_bytes(3));
  EXPECT_THROW(kernel->attend_backward(p.tiles, block.bytes(), 3, {.bytes = sums.bytes()}, {}), UsageError);
  const std::size_t before = kernel->workspace_bytes();
  kernel->reserve(Pass::backward);
  EXPECT_GT(kernel->workspace_bytes(), before);
  EXPECT_THROW(kernel->attend_backward(p.tiles, block.bytes(), 3, {.bytes = sums.bytes().first(8)}, {}),
               UsageError);
  EXPECT_THROW(kernel->attend_backward(full_tiles(4, 3), block.bytes(), 3, {.bytes = sums.bytes()}, {}),
               UsageError);
  const ConstLseView short_lse{in.lse.data(), {1, 1, 2}, {3, 3, 1}};
  EXPECT_THROW(kernel->load_rows(in.q.view(), {}, in.dout.view(), in.out.view(), short_lse, {}), UsageError);
}

}  // namespace
}  // namespace ringattn::test
