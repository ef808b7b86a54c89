// NaN and infinity in chapter 3: products multiply hidden values by a weight of 0, which must not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cuda/unsplit.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr index_t kQueries = 149, kKeys = 307;  // up to three warpgroups, three or four tiles

std::vector<std::vector<Tile>> masks() {
  return {full_tiles(kQueries, kKeys),
          causal_tiles(kQueries, kKeys),
          window_tiles(kQueries, kKeys, 60, 2),
          {{{0, kQueries}, {0, kKeys}, {190, 230}}},  // the last rows see nothing, and nobody the first keys
          // Two documents that meet inside a warpgroup of rows and a tile of keys.
          {{{0, 40}, {0, 141}, {}}, {{40, kQueries}, {141, kKeys}, {}}}};
}

// Rows for which `spoilt` holds are NaN, all others have the bits of the clean run.
void expect_rows(const Tensor& clean, const Tensor& dirty,
                 const std::function<bool(index_t head, index_t row, index_t e)>& spoilt) {
  for (index_t row = 0; row < clean.shape[1]; ++row)
    for (index_t head = 0; head < clean.shape[2]; ++head)
      for (index_t e = 0; e < clean.shape[3]; ++e) {
        const std::size_t at = clean.index(0, row, head, e);
        if (spoilt(head, row, e)) {
          ASSERT_TRUE(std::isnan(dirty.get(at))) << "row " << row << " head " << head << " " << e;
        } else {
          ASSERT_EQ(dirty.get(at), clean.get(at)) << "row " << row << " head " << head << " " << e;
        }
      }
}
void expect_lse(const Result& clean, const Result& dirty,
                const std::function<bool(index_t head, index_t row)>& spoilt) {
  for (std::size_t i = 0; i < clean.lse.size(); ++i) {
    const auto head = static_cast<index_t>(i) / kQueries, row = static_cast<index_t>(i) % kQueries;
    if (spoilt(head, row)) {
      ASSERT_TRUE(std::isnan(dirty.lse[i])) << "lse of row " << row << " head " << head;
    } else {
      ASSERT_EQ(dirty.lse[i], clean.lse[i]) << "lse of row " << row << " head " << head;
    }
  }
}

// head_dim 64 has three consumers, 128 two; 100 leaves columns to spare.
void expect_spread(const Problem& p) {
  const Inputs in = random_inputs(p, 31);
  const Result clean = run_unsplit("sm_90a", p, in);
  const index_t last = p.shape.head_dim_v - 1;
  for (const index_t j : {0, 95, 141, 306}) {
    SCOPED_TRACE("key " + std::to_string(j));
    Inputs bad = in;
    bad.k.set(bad.k.index(0, j, 0, 11), kNan);
    Result dirty = run_unsplit("sm_90a", p, bad);
    expect_rows(clean.out, dirty.out, [&](index_t, index_t i, index_t) { return p.visible(i, j); });
    expect_lse(clean, dirty, [&](index_t, index_t i) { return p.visible(i, j); });
    bad = in;
    bad.v.set(bad.v.index(0, j, 0, last), kNan);
    dirty = run_unsplit("sm_90a", p, bad);
    expect_rows(clean.out, dirty.out,
                [&](index_t, index_t i, index_t e) { return e == last && p.visible(i, j); });
    expect_lse(clean, dirty, [](index_t, index_t) { return false; });
  }
  for (const index_t row : {0, 148}) {
    SCOPED_TRACE("query " + std::to_string(row));
    Inputs bad = in;
    bad.q.set(bad.q.index(0, row, 1, 0), kNan);
    bool sees = false;
    for (index_t j = 0; j < kKeys; ++j) sees |= p.visible(row, j);
    const Result dirty = run_unsplit("sm_90a", p, bad);
    expect_rows(clean.out, dirty.out,
                [&](index_t h, index_t i, index_t) { return sees && h == 1 && i == row; });
    expect_lse(clean, dirty, [&](index_t h, index_t i) { return sees && h == 1 && i == row; });
  }
}

TEST(CudaSm90Nan, SpreadsToWhoSeesItAndNoFurther) {
  bool three = false;
  for (const auto& tiles : masks()) {
    three = !three;
    expect_spread(three ? problem_of({1, 2, 1, 64, 64}, DType::bf16, kQueries, kKeys, tiles)
                        : problem_of({1, 2, 1, 20, 100}, DType::f16, kQueries, kKeys, tiles));
  }
}

// Infinities behave as IEEE arithmetic says in the oracle: a score of +inf gives NaN, one of -inf weight 0.
TEST(CudaSm90Nan, InfinitiesFollowTheOracle) {
  for (const auto& tiles : masks()) {
    const Problem p = problem_of({1, 1, 1, 6, 9}, DType::bf16, kQueries, kKeys, tiles);
    for (const double inf : {kInf, -kInf})
      for (const index_t j : {0, 141, 306}) {
        Inputs in = random_inputs(p, 13);
        in.k.set(in.k.index(0, j, 0, 2), inf);
        expect_accurate(run_unsplit("sm_90a", p, in), p, in);
        in = random_inputs(p, 14);
        in.v.set(in.v.index(0, j, 0, 2), inf);
        expect_accurate(run_unsplit("sm_90a", p, in), p, in);
      }
  }
}

// Two infinities of one value cancel to NaN for those who see both, and only for them; in every row of the
// 16 that are copied at a time.
TEST(CudaSm90Nan, EveryPlaceOfAStepIsSearched) {
  const Problem p = problem_of({1, 1, 1, 64, 64}, DType::f16, 65, 65, causal_tiles(65, 65));
  const Inputs clean = random_inputs(p, 3);
  for (index_t j = 16; j < 32; ++j) {
    SCOPED_TRACE("key " + std::to_string(j));
    Inputs in = clean;
    in.v.set(in.v.index(0, j, 0, 4 * (j - 16)), kInf);
    in.v.set(in.v.index(0, j + 20, 0, 4 * (j - 16)), -kInf);
    expect_accurate(run_unsplit("sm_90a", p, in), p, in);
  }
}

// Scores of -inf before the first finite one, and rows that have nothing else.
TEST(CudaSm90Nan, ScoresOfMinusInfinityHaveNoWeight) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, DType::bf16, 50, 340, causal_tiles(50, 340));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 50; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < 300; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const Result result = run_unsplit("sm_90a", p, in, blocks_of(164, 340));
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -std::numeric_limits<float>::infinity());  // sees keys 0 .. 290 only
  EXPECT_EQ(result.out.get(0), 0.0);
}

// Rows and keys that nobody sees may hold anything.
TEST(CudaSm90Nan, WhatIsHiddenMayHoldAnything) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const double junk : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(text(dtype));
      const index_t rows = 161;
      const Problem p = problem_of({1, 1, 1, 128, 128}, dtype, rows, rows,
                                   {{{0, 140}, {0, 140}, {.hi = 0}}, {{145, rows}, {145, rows}, {-3, 0}}});
      const Inputs in = random_inputs(p, 77);
      Inputs bad = in;
      for (index_t j = 140; j < 145; ++j)
        for (Tensor* t : {&bad.q, &bad.k, &bad.v})
          for (index_t e = 0; e < 128; ++e) t->set(t->index(0, j, 0, e), junk);
      EXPECT_TRUE(same_bits(run_unsplit("sm_90a", p, in), run_unsplit("sm_90a", p, bad)));
    }
}

}  // namespace
}  // namespace ringattn::test
