// Faults met in public projects that have a backward side, as the smallest input that shows each; the right
// values are those of cases.md.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/attention/case_check.h"
#include "tests/support/gradient_case.h"
#include "tests/support/mask_formula.h"

namespace ringattn::test {
namespace {

constexpr double kTolerance = 1e-4;  // cases.md section 0: fp32 gradients

template <class Check>
void on_every_gradient_ring(const Problem& problem, const Inputs& in, const Check& check) {
  for (const RingShape& shape : ring_shapes(problem))
    check(run_threads_gradients(problem, shape.layout, shape.ranks, in), text(shape));
}

// Elements from (row, head, 0) on.
void expect_row(const Tensor& x, index_t row, index_t head, const std::vector<double>& expected,
                const std::string& where) {
  for (std::size_t d = 0; d < expected.size(); ++d)
    EXPECT_NEAR(x.at(0, row, head, static_cast<index_t>(d)), expected[d], 2e-6)
        << "row " << row << ", element " << d << ", " << where;
}

double sum_of(const Tensor& x) { return std::accumulate(x.data.begin(), x.data.end(), 0.0); }
void expect_sums(const Tensor& x, double sum, double sum_abs, const std::string& where) {
  double absolute = 0;
  for (const double e : x.data) absolute += std::fabs(e);
  EXPECT_NEAR(sum_of(x), sum, kTolerance) << where;
  EXPECT_NEAR(absolute, sum_abs, kTolerance * std::sqrt(static_cast<double>(x.data.size()))) << where;
}

Problem two_heads(Mask mask) {
  return {.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 8}, .mask = std::move(mask)};
}

TEST(GradientCases, A9_full_mask) {
  const Problem problem = two_heads(Mask::full(16, 16));
  on_every_gradient_ring(
      problem, case_inputs(problem), [](const GradientAnswer& got, const std::string& where) {
        expect_row(got.dq, 0, 0, {-0.036385535848, 0.037200262839, -0.050485620878, 0.064220734333}, where);
        expect_row(got.dv, 15, 1, {-0.002751504923, -0.164221467178, -0.174155379687, 0.185958572592}, where);
        expect_sums(got.dk, 0, 10.364823782113, where);
        expect_sums(got.dv, -9.9375, 32.935960027524, where);
        expect_sums(got.dq, sum_of(got.dq), 10.341137209664, where);
      });
}

TEST(GradientCases, A9_causal_mask) {
  const Problem problem = two_heads(Mask::causal(12, 12));
  on_every_gradient_ring(
      problem, case_inputs(problem), [](const GradientAnswer& got, const std::string& where) {
        EXPECT_NEAR(sum_of(got.forward.out), 3.116377645944, kTolerance) << where;
        expect_row(got.dv, 0, 0, {-0.956713290446, -0.029627015553, -1.6082848954}, where);
        expect_row(got.dv, 3, 0, {-0.209261143038, -0.108673182928, -0.313513581527}, where);
        expect_row(got.dv, 11, 0, {0.033223661656, 0.019543330386, -0.035177994695}, where);
        expect_row(got.dk, 5, 0, {0.009206303762, 0.006939557447, -0.013816208387}, where);
        expect_sums(got.dk, 0, 8.470247533223, where);
        expect_sums(got.dv, -7.546875, 39.030320102804, where);
        expect_sums(got.dq, sum_of(got.dq), 10.012187107371, where);
      });
}

// More queries than keys: rows 0 to 2 see nothing, and have no part in anything.
TEST(GradientCases, A8_rows_that_see_nothing) {
  const Problem problem{.shape = {.head_dim = 2, .head_dim_v = 1}, .mask = Mask::causal(5, 2)};
  Inputs in = case_inputs(problem);
  in.v.data = {10, 20};
  std::ranges::fill(in.dout.data, 1.0);
  on_every_gradient_ring(problem, in, [](const GradientAnswer& got, const std::string& where) {
    for (std::size_t e = 0; e < 8; ++e) EXPECT_EQ(got.dq.data[e], 0) << e << ", " << where;
    expect_row(got.dq, 4, 0, {-1.285528702, 1.915175414}, where);
    expect_row(got.dk, 0, 0, {0.970705347, 1.600352058}, where);
    expect_row(got.dk, 1, 0, {-0.970705347, -1.600352058}, where);
    EXPECT_NEAR(got.dv.data[0], 1.612006049, 1e-6) << where;
    EXPECT_NEAR(got.dv.data[1], 0.387993951, 1e-6) << where;
  });
}

// A3 test 1 with dout = 1: row i gives each of its i + 1 keys 1 / (i + 1), so dv[j] is a tail of the harmonic
// series, and q = k = 0 makes dq = dk = 0.
TEST(GradientCases, A3_lengths_that_do_not_divide_lose_no_token) {
  for (const index_t length : {7, 2999}) {
    const Problem problem{.shape = {.head_dim = 1}, .mask = Mask::causal(length, length)};
    const GradientAnswer got =
        run_threads_gradients(problem, LayoutKind::zigzag, length == 7 ? 2 : 4, mean_inputs(problem));
    double tail = 0;
    for (index_t j = length - 1; j >= 0; --j) {
      tail += 1 / static_cast<double>(j + 1);
      EXPECT_NEAR(got.dv.at(0, j, 0, 0), tail, 2e-6 * std::max(1.0, tail)) << j;
    }
    EXPECT_EQ(max_magnitude(got.dq.data), 0);
    EXPECT_EQ(max_magnitude(got.dk.data), 0);
  }
}

TEST(GradientCases, A13_documents_without_rows) {
  // Documents of 0, 1, 0, 2 queries and 0, 3, 0, 5 keys, two more without either, and one of no query and 4
  // keys.
  const std::vector<index_t> cu_q{0, 0, 1, 1, 3, 3, 3, 3}, cu_k{0, 0, 3, 3, 8, 8, 8, 12};
  const Problem problem{.shape = {.head_dim = 1}, .mask = Mask::documents(3, 12, cu_q, cu_k, {-1, 0})};
  const double third = 1.0 / 3;
  on_every_gradient_ring(problem, mean_inputs(problem),
                         [&](const GradientAnswer& got, const std::string& where) {
                           const double expected[] = {third, third, third, .45, .45, .45, .45, .2};
                           for (std::size_t j = 0; j < 8; ++j)
                             EXPECT_NEAR(got.dv.data[j], expected[j], 1e-6) << j << ", " << where;
                           for (std::size_t j = 8; j < 12; ++j) EXPECT_EQ(got.dv.data[j], 0) << where;
                           EXPECT_EQ(got.dk.data, std::vector<double>(12, 0.0)) << where;
                           EXPECT_EQ(got.dq.data, std::vector<double>(3, 0.0)) << where;
                         });
}

TEST(GradientCases, A16_gradients_of_a_group_are_summed) {
  const Problem flat{.shape = {.num_heads = 6, .num_heads_kv = 2, .head_dim = 1}, .mask = Mask::full(4, 4)};
  Inputs in = mean_inputs(flat);
  for (index_t j = 0; j < 4; ++j)
    for (const index_t h : {0, 1}) in.v.at(0, j, h, 0) = h == 0 ? 10 : 20;
  on_every_gradient_ring(flat, in, [](const GradientAnswer& got, const std::string& where) {
    for (const double x : got.dv.data) EXPECT_NEAR(x, 3.0, 1e-6) << where;
  });
  const Problem groups{.shape = {.num_heads = 6, .num_heads_kv = 2, .head_dim = 4},
                       .mask = Mask::causal(8, 8)};
  on_every_gradient_ring(groups, case_inputs(groups),
                         [](const GradientAnswer& got, const std::string& where) {
                           expect_sums(got.dv, -7.546875, 26.542748300879, where);
                           expect_sums(got.dk, 0, 6.017145758544, where);
                         });
}

TEST(GradientCases, A29_gradients_are_those_before_the_rotation) {
  struct Right {
    Rope::Pairing pairing;
    double loss;
    std::vector<double> dq5, dk0;  // dk0: not stated for half pairs
  };
  const Right cases[] = {{Rope::Pairing::interleaved,
                          -0.451670268815,
                          {-0.013443099994, -0.150625666648, 0.143980292956, -0.088226801593},
                          {-0.202089232199, 0.076599597297, 0.029264319343, 0.083914168103}},
                         {Rope::Pairing::half,
                          -0.103170028578,
                          {0.021280976576, 0.129795016291, 0.009858886334, -0.098324553201},
                          {}}};
  for (const Right& right : cases) {
    const Problem problem{
        .shape = {.head_dim = 4}, .mask = Mask::causal(6, 6), .rope = {.pairing = right.pairing}};
    const Inputs in = case_inputs(problem);
    on_every_gradient_ring(problem, in, [&](const GradientAnswer& got, const std::string& where) {
      const double loss = std::inner_product(got.forward.out.data.begin(), got.forward.out.data.end(),
                                             in.dout.data.begin(), 0.0);
      EXPECT_NEAR(loss, right.loss, 1e-5) << where;
      expect_row(got.dq, 5, 0, right.dq5, where);
      expect_row(got.dk, 0, 0, right.dk0, where);
      if (right.pairing == Rope::Pairing::interleaved)
        expect_sums(got.dq, sum_of(got.dq), 1.193467119106, where);
    });
  }
}

TEST(GradientCases, A32_rows_past_the_last_document_have_no_gradient_whatever_they_hold) {
  const std::vector<index_t> cu{0, 144, 432, 944};
  const auto problem = [&](index_t length) {
    return two_heads(Mask::documents(length, length, cu, cu, {-1, 0}));
  };
  const Inputs shorter = case_inputs(problem(944));
  Inputs longer = case_inputs(problem(946));
  for (auto [from, to] : {std::pair{&shorter.q, &longer.q},
                          {&shorter.k, &longer.k},
                          {&shorter.v, &longer.v},
                          {&shorter.dout, &longer.dout}}) {
    std::ranges::fill(to->data, std::nan(""));
    std::ranges::copy(from->data, to->data.begin());
  }
  const GradientAnswer one = run_threads_gradients(problem(944), LayoutKind::contiguous, 1, shorter);
  for (const int ranks : {1, 2}) {
    const GradientAnswer got = run_threads_gradients(problem(946), LayoutKind::contiguous, ranks, longer);
    for (const auto& [mine, right] : {std::pair{&got.dq, &one.dq}, {&got.dk, &one.dk}, {&got.dv, &one.dv}}) {
      const std::size_t inside = right->data.size();
      for (std::size_t i = inside; i < mine->data.size(); ++i) EXPECT_EQ(mine->data[i], 0) << i;
      const std::vector<double> head(mine->data.begin(),
                                     mine->data.begin() + static_cast<std::ptrdiff_t>(inside));
      // One rank cuts its blocks at the same places in both; two ranks add up in another order.
      if (ranks == 1) {
        EXPECT_TRUE(same_bits(head, right->data));
      } else {
        EXPECT_LE(max_error(head, right->data), 1e-5);
      }
    }
  }
}

TEST(GradientCases, A36_rows_and_heads_of_equal_number_are_not_swapped) {
  const Problem problem{.shape = {.batch = 2, .num_heads = 16, .num_heads_kv = 16, .head_dim = 64},
                        .mask = Mask::causal(16, 16)};
  on_every_gradient_ring(problem, case_inputs(problem),
                         [](const GradientAnswer& got, const std::string& where) {
                           expect_sums(got.dq, sum_of(got.dq), 1473.105492471, where);
                           expect_sums(got.dk, sum_of(got.dk), 1364.798945558, where);
                           EXPECT_NEAR(sum_of(got.dv), -216.5625, 1e-3) << where;
                         });
}

// Case A38: X, Y, X, Y without causal, X.
TEST(GradientCases, A38_nothing_leaks_from_one_problem_into_the_next) {
  const Problem x{.shape = {.num_heads = 12, .num_heads_kv = 12, .head_dim = 4},
                  .mask = Mask::causal(16, 16)};
  const Problem y{.shape = {.num_heads = 8, .num_heads_kv = 2, .head_dim = 4},
                  .mask = Mask::window(24, 24, {5, 0})};
  Problem y_open = y;
  y_open.mask = Mask::window(24, 24, {5, -1});
  const auto run = [](const Problem& p) {
    return run_threads_gradients(p, LayoutKind::zigzag, 4, case_inputs(p));
  };
  const GradientAnswer first = run(x);
  EXPECT_NEAR(sum_of(first.forward.out), -1.498664949130, kTolerance);
  EXPECT_NEAR(sum_of(first.dv), -22.5, kTolerance);
  const GradientAnswer second = run(y);
  EXPECT_NEAR(sum_of(second.forward.out), 23.735160704690, kTolerance);
  expect_sums(second.dv, sum_of(second.dv), 78.656244837970, "Y");
  EXPECT_TRUE(same_gradients(run(x), first));
  EXPECT_FALSE(same_gradients(run(y_open), second));
  EXPECT_TRUE(same_gradients(run(x), first));
}

// Scores that dwarf each other, that leave 16 bits, and odd scales: finite where the definition is, and near.
void expect_like_oracle(const Problem& problem, const Inputs& in, const Visible& visible, double tolerance) {
  const GradientAnswer exact = oracle_gradients(problem, in, visible);
  on_every_gradient_ring(problem, in, [&](const GradientAnswer& got, const std::string& where) {
    EXPECT_LE(max_error(got.dq.data, exact.dq.data), tolerance) << "dq, " << where;
    EXPECT_LE(max_error(got.dk.data, exact.dk.data), tolerance) << "dk, " << where;
    EXPECT_LE(max_error(got.dv.data, exact.dv.data), tolerance) << "dv, " << where;
  });
}

TEST(GradientCases, A40_hidden_keys_and_odd_scales) {
  Problem hidden{.shape = {.head_dim = 1}, .mask = Mask::tiles(2, 2, {{{0, 2}, {0, 1}, {}}})};
  hidden.softmax_scale = 1.0;
  Inputs in = mean_inputs(hidden);
  in.q.data = {-20000, 0};
  in.k.data = {1, 0};
  in.v.data = {1, 100};
  expect_like_oracle(
      hidden, in, [](index_t, index_t j) { return j == 0; }, 1e-6);

  for (const double scale : {-1.0, 0.0, 1.0}) {
    Problem scaled{.shape = {.head_dim = 1}, .mask = Mask::full(1, 4), .softmax_scale = scale};
    Inputs four = mean_inputs(scaled);
    four.q.data = {1};
    four.k.data = {0, 200, 0, 0};
    four.v.data = {1, 2, 3, 5};
    expect_like_oracle(
        scaled, four, [](index_t, index_t) { return true; }, 1e-4);
  }
}

TEST(GradientCases, A40_scores_beyond_16_bits) {
  const Problem half{.shape = {.head_dim = 64}, .dtype = DType::f16, .mask = Mask::full(4, 4)};
  Inputs in = mean_inputs(half);
  std::ranges::fill(in.q.data, 64);
  std::ranges::fill(in.k.data, 64);
  // lse is 32769, so p is off by 32769 * 2^-24 = 0.2 %; dv is 1, dk about 64 * 8 * 64, one f16 ulp is 2^-11.
  const GradientAnswer exact = oracle_gradients(half, in, [](index_t, index_t) { return true; });
  on_every_gradient_ring(half, in, [&](const GradientAnswer& got, const std::string& where) {
    for (const auto& [mine, right] :
         {std::pair{&got.dq, &exact.dq}, {&got.dk, &exact.dk}, {&got.dv, &exact.dv}})
      EXPECT_LE(max_error(mine->data, right->data), 0.005 * std::max(1.0, max_magnitude(exact.dk.data)))
          << where;
  });
}

// A40 test 3: one key and scores up to 1.4e11, whose unit in fp32 is 16384. An fp32 lse cannot say which p is
// meant there (see RingAttention::backward), but no gradient may be NaN or infinite where the definition is
// 0.
TEST(GradientCases, A40_scores_whose_unit_is_thousands_give_no_nan) {
  const Problem huge{.shape = {.head_dim = 64}, .mask = Mask::full(1, 1)};
  for (const double x : {300.0, 1003.0, 4099.0, 9973.0, 50021.0, 99991.0, 133120.0}) {
    Inputs in = mean_inputs(huge);
    for (Tensor* t : {&in.q, &in.k}) std::ranges::fill(t->data, x);
    std::ranges::fill(in.v.data, 1);
    on_every_gradient_ring(huge, in, [&](const GradientAnswer& got, const std::string& where) {
      for (const Tensor* gradient : {&got.dq, &got.dk, &got.dv})
        EXPECT_TRUE(std::isfinite(gradient->data[0])) << gradient->data[0] << " for " << x << ", " << where;
    });
  }
}

}  // namespace
}  // namespace ringattn::test
