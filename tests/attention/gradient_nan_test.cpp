// A NaN in the inputs of backward: it reaches every gradient whose formula it is in, and no other bit.
#include <gtest/gtest.h>

#include "tests/attention/case_check.h"
#include "tests/attention/random_problem.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

enum class Where { q, k, v, dout };
constexpr Where kEverywhere[] = {Where::q, Where::k, Where::v, Where::dout};
constexpr index_t kHead = 1, kElement = 3;  // of two query heads that read one KV head

// Which query rows (of which head) and which keys have a NaN in dq, dk and dv.
struct Reach {
  std::vector<std::array<bool, 2>> dq;  // [row][head]
  std::vector<bool> dk, dv;
  bool one_column = false;  // of dv: only element kElement
};

// By the formulas: a query row is lost if its q or its dout is NaN, or if it sees a key whose k or v is; what
// is lost of it is ds, and with it dq and the dk of all its keys. p, and with it dv of all its keys, is lost
// through q and k alone; a NaN in dout is in one column of dv.
Reach reach(Where where, index_t row, const Visible& visible, index_t length) {
  const auto n = static_cast<std::size_t>(length);
  Reach r{std::vector<std::array<bool, 2>>(n), std::vector<bool>(n), std::vector<bool>(n),
          where == Where::dout};
  const bool of_query = where == Where::q || where == Where::dout;
  for (index_t i = 0; i < length; ++i)
    for (const index_t h : {index_t{0}, index_t{1}}) {
      if (!(of_query ? i == row && h == kHead : visible(i, row))) continue;
      r.dq[static_cast<std::size_t>(i)][static_cast<std::size_t>(h)] = true;
      for (index_t j = 0; j < length; ++j)
        if (visible(i, j)) {
          r.dk[static_cast<std::size_t>(j)] = true;
          if (where != Where::v) r.dv[static_cast<std::size_t>(j)] = true;
        }
    }
  return r;
}

void expect_value(double got, double clean, bool lost, const std::string& what) {
  if (lost) {
    EXPECT_TRUE(std::isnan(got)) << what << " is " << got;
  } else {
    EXPECT_EQ(got, clean) << what;
  }
}

void expect_reach(const Reach& r, const GradientAnswer& got, const GradientAnswer& clean,
                  const std::string& where) {
  const index_t dim = got.dq.shape[3];
  for (index_t row = 0; row < got.dq.shape[1]; ++row)
    for (index_t d = 0; d < dim; ++d) {
      const auto n = static_cast<std::size_t>(row);
      const std::string at = std::to_string(row) + " element " + std::to_string(d) + ", " + where;
      for (const index_t h : {index_t{0}, index_t{1}})
        expect_value(got.dq.at(0, row, h, d), clean.dq.at(0, row, h, d), r.dq[n][static_cast<std::size_t>(h)],
                     "dq of row " + at);
      expect_value(got.dk.at(0, row, 0, d), clean.dk.at(0, row, 0, d), r.dk[n], "dk of key " + at);
      expect_value(got.dv.at(0, row, 0, d), clean.dv.at(0, row, 0, d),
                   r.dv[n] && (!r.one_column || d == kElement), "dv of key " + at);
    }
}

void poison(Inputs& in, Where where, index_t row) {
  Tensor* const tensors[] = {&in.q, &in.k, &in.v, &in.dout};
  const bool of_query = where == Where::q || where == Where::dout;
  tensors[static_cast<std::size_t>(where)]->at(0, row, of_query ? kHead : 0, kElement) = std::nan("");
}

void expect_contained(const MaskCase& m, index_t length, LayoutKind layout, int ranks) {
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 12}, .mask = m.mask};
  const Inputs in = random_inputs(problem, 8);
  const GradientAnswer clean = run_threads_gradients(problem, layout, ranks, in);
  for (const Where where : kEverywhere)
    for (const index_t row : {0, 41, 64, 100}) {
      Inputs spoilt = in;
      poison(spoilt, where, row);
      const GradientAnswer got = run_threads_gradients(problem, layout, ranks, spoilt);
      expect_reach(reach(where, row, m.visible, length), got, clean,
                   "NaN in tensor " + std::to_string(static_cast<int>(where)) + " row " +
                       std::to_string(row) + ", " + m.mask.name() + ", " + std::to_string(ranks) + " ranks " +
                       std::string(name_of(layout)));
    }
}

// A window, whose rows share keys, and documents, between which nothing may pass.
TEST(GradientNaN, reaches_those_that_see_it_and_no_other_bit) {
  const index_t length = 101;
  const std::vector<index_t> cu{0, 17, 64, 101};
  const MaskCase window = window_case(length, length, {9, 4});
  const MaskCase documents = document_case(length, length, cu, cu, {-1, 0});
  for (const int ranks : {1, 2, 3, 4})
    for (const LayoutKind layout : kLayouts) {
      expect_contained(window, length, layout, ranks);
      expect_contained(documents, length, layout, ranks);
    }
}

// The oracle agrees with the formulas above: both are written from the definition, neither from the kernel.
TEST(GradientNaN, reaches_what_it_reaches_in_the_oracle) {
  const index_t length = 101;
  const MaskCase m = window_case(length, length, {9, 4});
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 12}, .mask = m.mask};
  const Inputs in = random_inputs(problem, 8);
  const GradientAnswer clean = oracle_gradients(problem, in, m.visible);
  for (const Where where : kEverywhere) {
    Inputs spoilt = in;
    poison(spoilt, where, 41);
    expect_reach(reach(where, 41, m.visible, length), oracle_gradients(problem, spoilt, m.visible), clean,
                 "oracle, tensor " + std::to_string(static_cast<int>(where)));
  }
}

}  // namespace
}  // namespace ringattn::test
