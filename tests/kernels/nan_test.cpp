// NaN and infinity reach exactly the rows that see them; every other row keeps its bits.
#include <cmath>
#include <limits>

#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::vector<Tile>> masks(index_t q_rows, index_t k_rows) {
  return {full_tiles(q_rows, k_rows),
          causal_tiles(q_rows, k_rows),
          window_tiles(q_rows, k_rows, 5, 2),
          {{{0, q_rows}, {0, k_rows}, {5, 9}}},  // the last rows see nothing
          // Two documents that meet inside a group of 48 rows and a block of 64 keys.
          {{{0, 20}, {0, 77}, {}}, {{20, q_rows}, {77, k_rows}, {}}}};
}

// Compares a run with the clean one, row by row and column by column. `poisoned(i, e)`: out[i][e] must be
// NaN.
template <class Poisoned>
void expect_spread(const Problem& p, const Result& clean, const Result& dirty, bool lse_too,
                   const Poisoned& poisoned) {
  for (index_t h = 0; h < p.shape.num_heads; ++h)
    for (index_t i = 0; i < p.q_rows; ++i) {
      bool any = false;
      for (index_t e = 0; e < p.shape.head_dim_v; ++e) {
        const std::size_t at = clean.out.index(0, i, h, e);
        any |= poisoned(h, i, e);
        if (poisoned(h, i, e)) {
          ASSERT_TRUE(std::isnan(dirty.out.get(at))) << "row " << i << " head " << h << " column " << e;
        } else {
          ASSERT_EQ(dirty.out.get(at), clean.out.get(at)) << "row " << i << " head " << h << " column " << e;
        }
      }
      const auto row = static_cast<std::size_t>(h * p.q_rows + i);
      if (any && lse_too) {
        ASSERT_TRUE(std::isnan(dirty.lse[row])) << "row " << i;
      } else {
        ASSERT_EQ(dirty.lse[row], clean.lse[row]) << "row " << i;
      }
    }
}

TEST_P(EveryIsa, NanSpreadsToWhoSeesItAndNoFurther) {
  const index_t q_rows = 101, k_rows = 139;
  for (const auto& tiles : masks(q_rows, k_rows)) {
    const Problem p = problem_of({1, 2, 1, 12, 17}, DType::f32, q_rows, k_rows, tiles);
    const Inputs in = random_inputs(p, 31);
    const Result clean = run_cpu(p, in, GetParam());
    for (const index_t j : {0, 1, 7, 8, 63, 64, 76, 77, 127, 128, 138}) {
      SCOPED_TRACE("key " + std::to_string(j));
      Inputs bad = in;
      bad.k.set(bad.k.index(0, j, 0, 11), kNan);
      expect_spread(p, clean, run_cpu(p, bad, GetParam()), true,
                    [&](index_t, index_t i, index_t) { return p.visible(i, j); });
      bad = in;
      bad.v.set(bad.v.index(0, j, 0, 16), kNan);
      expect_spread(p, clean, run_cpu(p, bad, GetParam()), false,
                    [&](index_t, index_t i, index_t e) { return e == 16 && p.visible(i, j); });
    }
    for (const index_t row : {0, 15, 16, 47, 48, 100}) {
      SCOPED_TRACE("query " + std::to_string(row));
      Inputs bad = in;
      bad.q.set(bad.q.index(0, row, 1, 0), kNan);
      bool sees = false;
      for (index_t j = 0; j < k_rows; ++j) sees |= p.visible(row, j);
      expect_spread(p, clean, run_cpu(p, bad, GetParam()), true,
                    [&](index_t h, index_t i, index_t) { return sees && h == 1 && i == row; });
    }
  }
}

// A value of infinity is worth weight times infinity, which is NaN where the weight underflows: rows that see
// key `heavy`, whose score is greater by 1000, have a weight of 0 for all others, in double as well.
TEST_P(EveryIsa, AnInfiniteValueWithoutWeightIsNan) {
  const index_t q_rows = 101, k_rows = 139;
  for (const DType dtype : kDtypes)
    for (const auto& tiles : masks(q_rows, k_rows)) {
      Problem p = problem_of({1, 1, 1, 1, 9}, dtype, q_rows, k_rows, tiles);
      p.scale = 1;
      for (const index_t heavy : {8, 78}) {
        SCOPED_TRACE(text(dtype) + ", heavy key " + std::to_string(heavy));
        Inputs in = random_inputs(p, 16);
        for (index_t i = 0; i < q_rows; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
        for (index_t j = 0; j < k_rows; ++j) in.k.set(in.k.index(0, j, 0, 0), j == heavy ? 1000 : 0);
        index_t column = 0;
        for (const index_t j : {0, 7, 9, 76, 77, 128, 138}) {
          in.v.set(in.v.index(0, j, 0, column), column % 2 == 0 ? kInf : -kInf);
          ++column;
        }
        expect_accurate(run_cpu(p, in, GetParam()), p, in);
      }
    }
}

// A whole block of NaN that nobody sees, among blocks that are seen; also with 16-bit elements.
TEST_P(EveryIsa, HiddenKeysMayHoldAnything) {
  for (const DType dtype : kDtypes)
    for (const double junk : {kNan, kInf, -kInf}) {
      SCOPED_TRACE(text(dtype));
      const index_t rows = 113;
      const Problem p = problem_of({1, 1, 1, 20, 20}, dtype, rows, rows,
                                   {{{0, 40}, {0, 40}, {.hi = 0}}, {{45, rows}, {45, rows}, {-3, 0}}});
      const Inputs in = random_inputs(p, 77);
      Inputs bad = in;
      for (index_t j = 40; j < 45; ++j)
        for (index_t e = 0; e < 20; ++e) {
          bad.k.set(bad.k.index(0, j, 0, e), junk);
          bad.v.set(bad.v.index(0, j, 0, e), junk);
          bad.q.set(bad.q.index(0, j, 0, e), junk);
        }
      EXPECT_TRUE(same_bits(run_cpu(p, in, GetParam()), run_cpu(p, bad, GetParam())));
    }
}

// Infinities behave as IEEE arithmetic says in the oracle: a score of +inf gives NaN, one of -inf weight 0.
TEST_P(EveryIsa, InfinitiesFollowTheOracle) {
  const index_t q_rows = 61, k_rows = 131;
  for (const auto& tiles : masks(q_rows, k_rows)) {
    const Problem p = problem_of({1, 1, 1, 6, 9}, DType::f32, q_rows, k_rows, tiles);
    for (const double inf : {kInf, -kInf})
      for (const index_t j : {0, 8, 70, 130}) {
        Inputs in = random_inputs(p, 13);
        in.k.set(in.k.index(0, j, 0, 2), inf);
        expect_accurate(run_cpu(p, in, GetParam()), p, in);
        in = random_inputs(p, 14);
        in.v.set(in.v.index(0, j, 0, 2), inf);
        expect_accurate(run_cpu(p, in, GetParam()), p, in);
      }
    Inputs in = random_inputs(p, 15);
    in.q.set(in.q.index(0, 3, 0, 1), kInf);
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

// Scores of -inf before the first finite one, and rows that have nothing else.
TEST_P(EveryIsa, ScoresOfMinusInfinityHaveNoWeight) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, DType::f32, 50, 140, causal_tiles(50, 140));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 50; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < 100; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const Result result = run_cpu(p, in, GetParam(), blocks_of(64, 140));
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -std::numeric_limits<float>::infinity());  // sees keys 0 .. 90 only
  EXPECT_EQ(result.out.get(0), 0.0);
}

}  // namespace
}  // namespace ringattn::test
