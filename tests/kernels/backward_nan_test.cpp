// NaN and infinity reach exactly the gradients of the rows that see them; all others keep their bits.
#include <cmath>
#include <limits>

#include "tests/kernels/backward_support.h"
#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr index_t kQueries = 101, kKeys = 277;  // three groups, two tasks; nothing divides

std::vector<std::vector<Tile>> masks() {
  return {full_tiles(kQueries, kKeys),
          causal_tiles(kQueries, kKeys),
          window_tiles(kQueries, kKeys, 5, 2),
          {{{0, kQueries}, {0, kKeys}, {5, 9}}},  // the last keys are seen by nobody
          // Two documents that meet inside a group of 48 rows and a panel of 8 keys.
          {{{0, 20}, {0, 77}, {}}, {{20, kQueries}, {77, kKeys}, {}}}};
}

// Which elements must be NaN, by row, head and column; all others must have the bits of the clean run.
struct Spread {
  std::function<bool(index_t head, index_t i, index_t e)> dq;
  std::function<bool(index_t j, index_t e)> dk, dv;
};

void expect_rows(const char* what, const Tensor& clean, const Tensor& dirty,
                 const std::function<bool(index_t head, index_t row, index_t e)>& poisoned) {
  for (index_t row = 0; row < clean.shape[1]; ++row)
    for (index_t head = 0; head < clean.shape[2]; ++head)
      for (index_t e = 0; e < clean.shape[3]; ++e) {
        const std::size_t at = clean.index(0, row, head, e);
        if (poisoned(head, row, e)) {
          ASSERT_TRUE(std::isnan(dirty.get(at))) << what << " row " << row << " head " << head << " " << e;
        } else {
          ASSERT_EQ(dirty.get(at), clean.get(at)) << what << " row " << row << " head " << head << " " << e;
        }
      }
}

void expect_spread(const Gradients& clean, const Gradients& dirty, const Spread& spread) {
  expect_rows("dq", clean.dq, dirty.dq, spread.dq);
  expect_rows("dk", clean.dk, dirty.dk, [&](index_t, index_t j, index_t e) { return spread.dk(j, e); });
  expect_rows("dv", clean.dv, dirty.dv, [&](index_t, index_t j, index_t e) { return spread.dv(j, e); });
}

bool always(index_t, index_t) { return true; }
bool never(index_t, index_t) { return false; }

class Poisoning {
 public:
  Poisoning(const std::vector<Tile>& tiles, const std::string& isa)
      : p_(problem_of({1, 2, 1, 12, 17}, DType::f32, kQueries, kKeys, tiles)),
        isa_(isa),
        in_(random_backward_inputs(p_, 31)),
        clean_(run(in_)) {}

  // Rows (of the given head, -1: of all) for which `bad` holds spoil their dq and, where dk_column and
  // dv_column say so, dk and dv of the keys that they see.
  void expect(const BackwardInputs& dirty, index_t head, const std::function<bool(index_t i)>& bad,
              bool (*dk_column)(index_t, index_t), bool (*dv_column)(index_t, index_t)) {
    const auto seen = [&](index_t j) {
      for (index_t i = 0; i < kQueries; ++i)
        if (bad(i) && p_.visible(i, j)) return true;
      return false;
    };
    const auto sees = [&](index_t i) {
      for (index_t j = 0; j < kKeys; ++j)
        if (p_.visible(i, j)) return true;
      return false;
    };
    expect_spread(
        clean_, run(dirty),
        {.dq = [&](index_t h, index_t i, index_t) { return (head < 0 || h == head) && bad(i) && sees(i); },
         .dk = [&](index_t j, index_t e) { return dk_column(j, e) && seen(j); },
         .dv = [&](index_t j, index_t e) { return dv_column(j, e) && seen(j); }});
  }

  Gradients run(const BackwardInputs& in) const { return run_backward_cpu(p_, in, isa_); }
  const Problem& problem() const { return p_; }
  const BackwardInputs& inputs() const { return in_; }

 private:
  Problem p_;
  std::string isa_;
  BackwardInputs in_;
  Gradients clean_;
};

// In q, dout, out and lse of one row of head 1, as they are given: the rest of the row need not agree.
TEST_P(EveryIsa, NanOfAQueryReachesItsKeysAndNoFurther) {
  for (const auto& tiles : masks()) {
    Poisoning test(tiles, GetParam());
    for (const index_t row : {0, 15, 16, 47, 48, 95, 96, 100}) {
      SCOPED_TRACE("query " + std::to_string(row));
      const auto own = [&](index_t i) { return i == row; };
      BackwardInputs bad = test.inputs();
      bad.q.set(bad.q.index(0, row, 1, 3), kNan);
      test.expect(bad, 1, own, always, always);
      bad = test.inputs();
      bad.dout.set(bad.dout.index(0, row, 1, 16), kNan);
      test.expect(bad, 1, own, always, [](index_t, index_t e) { return e == 16; });
      bad = test.inputs();
      bad.out.set(bad.out.index(0, row, 1, 4), kNan);
      test.expect(bad, 1, own, always, never);
      bad = test.inputs();
      bad.lse[static_cast<std::size_t>(kQueries + row)] = std::numeric_limits<float>::quiet_NaN();
      test.expect(bad, 1, own, always, always);
    }
  }
}

// In k and v of one key, with out and lse formed anew: every row that sees the key is spoilt, and so are the
// keys that such a row sees; dv does not depend on v.
TEST_P(EveryIsa, NanOfAKeyReachesTheRowsThatSeeIt) {
  for (const auto& tiles : masks()) {
    Poisoning test(tiles, GetParam());
    for (const index_t j : {0, 7, 8, 63, 64, 76, 77, 127, 255, 256, 276}) {
      SCOPED_TRACE("key " + std::to_string(j));
      const auto sees = [&](index_t i) { return test.problem().visible(i, j); };
      BackwardInputs bad = test.inputs();
      bad.k.set(bad.k.index(0, j, 0, 11), kNan);
      test.expect(reformed(test.problem(), bad), -1, sees, always, always);
      bad = test.inputs();
      bad.v.set(bad.v.index(0, j, 0, 16), kNan);
      test.expect(reformed(test.problem(), bad), -1, sees, always, never);
    }
  }
}

// Rows and keys that nobody sees may hold anything; so may a row whose lse is -inf.
TEST_P(EveryIsa, WhatIsHiddenMayHoldAnythingInBackward) {
  for (const DType dtype : kDtypes)
    for (const double junk : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(text(dtype));
      const index_t rows = 113;
      const Problem p = problem_of({1, 1, 1, 20, 20}, dtype, rows, rows,
                                   {{{0, 40}, {0, 40}, {.hi = 0}}, {{45, rows}, {45, rows}, {-3, 0}}});
      const BackwardInputs in = random_backward_inputs(p, 77);
      BackwardInputs bad = in;
      for (index_t j = 40; j < 45; ++j)
        for (Tensor* t : {&bad.q, &bad.k, &bad.v, &bad.dout, &bad.out})
          for (index_t e = 0; e < 20; ++e) t->set(t->index(0, j, 0, e), junk);
      EXPECT_TRUE(same_bits(run_backward_cpu(p, in, GetParam()), run_backward_cpu(p, bad, GetParam())));
    }
}

TEST_P(EveryIsa, RowsWithLseOfMinusInfinityAddNothing) {
  for (const auto& tiles : masks()) {
    const Problem p = problem_of({1, 1, 1, 12, 9}, DType::f32, kQueries, kKeys, tiles);
    BackwardInputs in = random_backward_inputs(p, 3);
    for (const index_t i : {2, 40, 41, 48, 100})
      in.lse[static_cast<std::size_t>(i)] = -std::numeric_limits<float>::infinity();
    const Gradients got = run_backward_cpu(p, in, GetParam());
    BackwardInputs bad = in;
    for (const index_t i : {2, 40, 41, 48, 100})
      for (Tensor* t : {&bad.q, &bad.dout, &bad.out})
        for (index_t e = 0; e < t->shape[3]; ++e) t->set(t->index(0, i, 0, e), kNan);
    for (const index_t i : {2, 40, 41, 48, 100})
      for (index_t e = 0; e < 12; ++e) EXPECT_EQ(got.dq.get(got.dq.index(0, i, 0, e)), 0.0);
    EXPECT_TRUE(same_bits(run_backward_cpu(p, bad, GetParam()), got));
  }
}

// A key of -inf in a column where every q is 1: score -inf, weight 0, and for a row that sees nothing else
// lse -inf. 0 * -inf makes dq of that column NaN for all others that see it, by IEEE and by the oracle.
TEST_P(EveryIsa, InfiniteKeysFollowTheOracle) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, DType::f32, 50, 140, causal_tiles(50, 140));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 50; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < 100; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const BackwardInputs all = backward_inputs(p, in, random_tensor(p.dtype, p.out_shape(), 8));
  EXPECT_EQ(all.lse[0], -std::numeric_limits<float>::infinity());  // sees keys 0 .. 90 only
  const Gradients got = run_backward_cpu(p, all, GetParam());
  EXPECT_EQ(got.dq.get(0), 0.0);
  expect_accurate(got, p, all);
}

}  // namespace
}  // namespace ringattn::test
