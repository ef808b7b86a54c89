// NaN and infinity reach exactly what sees them in the CUDA kernels; everything else keeps its bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cuda/spoilt_rows.h"
#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr index_t kQueries = 37, kKeys = 71;  // three groups, three steps; nothing divides

std::vector<std::vector<Tile>> masks() {
  return {full_tiles(kQueries, kKeys),
          causal_tiles(kQueries, kKeys),
          window_tiles(kQueries, kKeys, 5, 2),
          {{{0, kQueries}, {0, kKeys}, {40, 44}}},  // the last rows see nothing, and nobody the first keys
          // Two documents that meet inside a group of rows and a step of keys.
          {{{0, 20}, {0, 41}, {}}, {{20, kQueries}, {41, kKeys}, {}}}};
}

void expect_lse(const Result& clean, const Result& dirty,
                const std::function<bool(index_t, index_t)>& spoilt) {
  for (std::size_t i = 0; i < clean.lse.size(); ++i) {
    const auto head = static_cast<index_t>(i) / kQueries, row = static_cast<index_t>(i) % kQueries;
    if (spoilt(head, row)) {
      ASSERT_TRUE(std::isnan(dirty.lse[i])) << "lse of row " << row << " head " << head;
    } else {
      ASSERT_EQ(dirty.lse[i], clean.lse[i]) << "lse of row " << row << " head " << head;
    }
  }
}

class CudaNan : public EveryChapter {};
INSTANTIATE_TEST_SUITE_P(All, CudaNan, ::testing::ValuesIn(kChapters));

TEST_P(CudaNan, SpreadsToWhoSeesItAndNoFurther) {
  for (const auto& tiles : masks()) {
    const Problem p = problem_of({1, 2, 1, 12, 17}, dtype(), kQueries, kKeys, tiles);
    const Inputs in = random_inputs(p, 31);
    const Result clean = run_cuda(p, in);
    for (const index_t j : {0, 31, 32, 40, 41, 70}) {
      SCOPED_TRACE("key " + std::to_string(j));
      Inputs bad = in;
      bad.k.set(bad.k.index(0, j, 0, 11), kNan);
      Result dirty = run_cuda(p, bad);
      expect_rows("out", clean.out, dirty.out, [&](index_t, index_t i, index_t) { return p.visible(i, j); });
      expect_lse(clean, dirty, [&](index_t, index_t i) { return p.visible(i, j); });
      bad = in;
      bad.v.set(bad.v.index(0, j, 0, 16), kNan);
      dirty = run_cuda(p, bad);
      expect_rows("out", clean.out, dirty.out,
                  [&](index_t, index_t i, index_t e) { return e == 16 && p.visible(i, j); });
      expect_lse(clean, dirty, [](index_t, index_t) { return false; });
    }
    for (const index_t row : {0, 15, 16, 36}) {
      SCOPED_TRACE("query " + std::to_string(row));
      Inputs bad = in;
      bad.q.set(bad.q.index(0, row, 1, 0), kNan);
      bool sees = false;
      for (index_t j = 0; j < kKeys; ++j) sees |= p.visible(row, j);
      const Result dirty = run_cuda(p, bad);
      expect_rows("out", clean.out, dirty.out,
                  [&](index_t h, index_t i, index_t) { return sees && h == 1 && i == row; });
      expect_lse(clean, dirty, [&](index_t h, index_t i) { return sees && h == 1 && i == row; });
    }
  }
}

// Infinities behave as IEEE arithmetic says in the oracle: a score of +inf gives NaN, one of -inf weight 0.
TEST_P(CudaNan, InfinitiesFollowTheOracle) {
  for (const auto& tiles : masks()) {
    const Problem p = problem_of({1, 1, 1, 6, 9}, dtype(), kQueries, kKeys, tiles);
    for (const double inf : {kInf, -kInf})
      for (const index_t j : {0, 40, 70}) {
        Inputs in = random_inputs(p, 13);
        in.k.set(in.k.index(0, j, 0, 2), inf);
        expect_accurate(run_cuda(p, in), p, in);
        in = random_inputs(p, 14);
        in.v.set(in.v.index(0, j, 0, 2), inf);
        expect_accurate(run_cuda(p, in), p, in);
      }
    Inputs in = random_inputs(p, 15);
    in.q.set(in.q.index(0, 3, 0, 1), kInf);
    expect_accurate(run_cuda(p, in), p, in);
  }
}

// Scores of -inf before the first finite one, and rows that have nothing else. 0 * -inf makes dq of that
// column NaN for all others that see it, by IEEE and by the oracle.
TEST_P(CudaNan, ScoresOfMinusInfinityHaveNoWeight) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, dtype(), 50, 140, causal_tiles(50, 140));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 50; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < 100; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const Result result = run_cuda(p, in, blocks_of(64, 140));
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -std::numeric_limits<float>::infinity());  // sees keys 0 .. 90 only
  EXPECT_EQ(result.out.get(0), 0.0);
  const BackwardInputs all = backward_inputs(p, in, random_tensor(p.dtype, p.out_shape(), 8));
  const Gradients got = run_backward_cuda(p, all);
  EXPECT_EQ(got.dq.get(0), 0.0);
  expect_accurate(got, p, all);
}

// Rows and keys that nobody sees may hold anything.
TEST_P(CudaNan, WhatIsHiddenMayHoldAnything) {
  for (const DType type : dtypes())
    for (const double junk : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(text(type));
      const index_t rows = 61;
      const Problem p = problem_of({1, 1, 1, 20, 20}, type, rows, rows,
                                   {{{0, 40}, {0, 40}, {.hi = 0}}, {{45, rows}, {45, rows}, {-3, 0}}});
      const BackwardInputs in = random_backward_inputs(p, 77);
      BackwardInputs bad = in;
      for (index_t j = 40; j < 45; ++j)
        for (Tensor* t : {&bad.q, &bad.k, &bad.v, &bad.dout, &bad.out})
          for (index_t e = 0; e < 20; ++e) t->set(t->index(0, j, 0, e), junk);
      EXPECT_TRUE(same_bits(run_cuda(p, {in.q, in.k, in.v}), run_cuda(p, {bad.q, bad.k, bad.v})));
      EXPECT_TRUE(same_bits(run_backward_cuda(p, in), run_backward_cuda(p, bad)));
    }
}

class CudaBackwardNan : public EveryChapter {
 protected:
  void prepare(const std::vector<Tile>& tiles) {
    p_ = problem_of({1, 2, 1, 12, 17}, dtype(), kQueries, kKeys, tiles);
    in_ = std::make_unique<BackwardInputs>(random_backward_inputs(p_, 31));
    clean_ = std::make_unique<Gradients>(run_backward_cuda(p_, *in_));
  }

  // Rows (of the given head, -1: of all) for which `bad` holds spoil their dq and, where dk and dv say so,
  // those columns of the keys that they see.
  void expect(const BackwardInputs& dirty, index_t head, const std::function<bool(index_t i)>& bad,
              const std::function<bool(index_t e)>& dk, const std::function<bool(index_t e)>& dv) {
    std::vector<bool> seen(kKeys), sees(kQueries);
    for (index_t i = 0; i < kQueries; ++i)
      for (index_t j = 0; j < kKeys; ++j)
        if (bad(i) && p_.visible(i, j)) {
          seen[static_cast<std::size_t>(j)] = true;
          sees[static_cast<std::size_t>(i)] = true;
        }
    const Gradients got = run_backward_cuda(p_, dirty);
    expect_rows("dq", clean_->dq, got.dq, [&](index_t h, index_t i, index_t) {
      return (head < 0 || h == head) && sees[static_cast<std::size_t>(i)];
    });
    expect_rows("dk", clean_->dk, got.dk,
                [&](index_t, index_t j, index_t e) { return dk(e) && seen[static_cast<std::size_t>(j)]; });
    expect_rows("dv", clean_->dv, got.dv,
                [&](index_t, index_t j, index_t e) { return dv(e) && seen[static_cast<std::size_t>(j)]; });
  }

  Problem p_;
  std::unique_ptr<BackwardInputs> in_;
  std::unique_ptr<Gradients> clean_;
};

constexpr auto kAlways = [](index_t) { return true; };
constexpr auto kNever = [](index_t) { return false; };

INSTANTIATE_TEST_SUITE_P(All, CudaBackwardNan, ::testing::ValuesIn(kChapters));

// In q, dout, out and lse of one row of head 1, as they are given: the rest of the row need not agree.
TEST_P(CudaBackwardNan, OfAQueryReachesItsKeysAndNoFurther) {
  for (const auto& tiles : masks()) {
    prepare(tiles);
    for (const index_t row : {0, 15, 16, 36}) {
      SCOPED_TRACE("query " + std::to_string(row));
      const auto own = [&](index_t i) { return i == row; };
      BackwardInputs bad = *in_;
      bad.q.set(bad.q.index(0, row, 1, 3), kNan);
      expect(bad, 1, own, kAlways, kAlways);
      bad = *in_;
      bad.dout.set(bad.dout.index(0, row, 1, 16), kNan);
      expect(bad, 1, own, kAlways, [](index_t e) { return e == 16; });
      bad = *in_;
      bad.out.set(bad.out.index(0, row, 1, 4), kNan);
      expect(bad, 1, own, kAlways, kNever);
      bad = *in_;
      bad.lse[static_cast<std::size_t>(kQueries + row)] = std::numeric_limits<float>::quiet_NaN();
      expect(bad, 1, own, kAlways, kAlways);
    }
  }
}

// In k and v of one key, with out and lse formed anew: every row that sees the key is spoilt, and so are the
// keys that such a row sees; dv does not depend on v.
TEST_P(CudaBackwardNan, OfAKeyReachesTheRowsThatSeeIt) {
  for (const auto& tiles : masks()) {
    prepare(tiles);
    for (const index_t j : {0, 31, 32, 40, 41, 70}) {
      SCOPED_TRACE("key " + std::to_string(j));
      const auto sees = [&](index_t i) { return p_.visible(i, j); };
      BackwardInputs bad = *in_;
      bad.k.set(bad.k.index(0, j, 0, 11), kNan);
      expect(reformed(p_, bad), -1, sees, kAlways, kAlways);
      bad = *in_;
      bad.v.set(bad.v.index(0, j, 0, 16), kNan);
      expect(reformed(p_, bad), -1, sees, kAlways, kNever);
    }
  }
}

TEST_P(CudaBackwardNan, RowsWithLseOfMinusInfinityAddNothing) {
  for (const auto& tiles : masks()) {
    prepare(tiles);
    BackwardInputs in = *in_;
    const index_t rows[] = {2, 15, 16, 36};
    for (const index_t i : rows)
      for (const index_t head : {0, 1})
        in.lse[static_cast<std::size_t>(head * kQueries + i)] = -std::numeric_limits<float>::infinity();
    const Gradients got = run_backward_cuda(p_, in);
    BackwardInputs bad = in;
    for (const index_t i : rows)
      for (const index_t head : {0, 1})
        for (Tensor* t : {&bad.q, &bad.dout, &bad.out})
          for (index_t e = 0; e < t->shape[3]; ++e) t->set(t->index(0, i, head, e), kNan);
    for (const index_t i : rows)
      for (index_t e = 0; e < 12; ++e) EXPECT_EQ(got.dq.get(got.dq.index(0, i, 0, e)), 0.0);
    EXPECT_TRUE(same_bits(run_backward_cuda(p_, bad), got));
  }
}

}  // namespace
}  // namespace ringattn::test
