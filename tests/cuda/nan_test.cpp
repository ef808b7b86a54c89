// NaN and infinity reach exactly what sees them in forward of the CUDA kernels; everything else keeps its
// bits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cuda/spoilt_rows.h"
#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Lengths of which nothing divides, so that there are several groups of a chapter's rows and steps of its
// keys, with masks that cut them and that leave some whole.
struct Lengths {
  index_t queries, keys;
  index_t window_left, window_right;
  Band late;              // the last rows see nothing, and nobody the first keys
  Range first_document;   // rows of the first, which ends inside a group of rows
  index_t document_keys;  // and inside a step of keys
  std::vector<index_t> some_keys, some_queries;

  std::vector<std::vector<Tile>> masks() const {
    const index_t rows = first_document.end;
    return {full_tiles(queries, keys),
            causal_tiles(queries, keys),
            window_tiles(queries, keys, window_left, window_right),
            {{{0, queries}, {0, keys}, late}},
            {{first_document, {0, document_keys}, {}}, {{rows, queries}, {document_keys, keys}, {}}}};
  }
};
// Three groups of 16 rows, three steps of 32 keys.
const Lengths kShort{37, 71, 5, 2, {40, 44}, {0, 20}, 41, {0, 31, 32, 40, 41, 70}, {0, 15, 16, 36}};
// Of chapter 3: up to three warpgroups, three or four tiles.
const Lengths kLong{149, 307, 60, 2, {190, 230}, {0, 40}, 141, {0, 95, 141, 306}, {0, 148}};

void expect_lse(const Result& clean, const Result& dirty,
                const std::function<bool(index_t head, index_t row)>& spoilt) {
  const index_t rows = clean.out.shape[1];
  for (std::size_t i = 0; i < clean.lse.size(); ++i) {
    const auto head = static_cast<index_t>(i) / rows, row = static_cast<index_t>(i) % rows;
    if (spoilt(head, row)) {
      ASSERT_TRUE(std::isnan(dirty.lse[i])) << "lse of row " << row << " head " << head;
    } else {
      ASSERT_EQ(dirty.lse[i], clean.lse[i]) << "lse of row " << row << " head " << head;
    }
  }
}

class CudaNan : public EveryChapter {
 protected:
  bool tiles_are_large() const { return GetParam() == kChapters[2]; }
  const Lengths& lengths() const { return tiles_are_large() ? kLong : kShort; }
  // Two heads that read the same keys. Chapter 3 has three consumers up to head_dim 64, and then two.
  Problem problem(std::size_t number, const std::vector<Tile>& tiles) const {
    const HeadShape shapes[] = {{1, 2, 1, 64, 64}, {1, 2, 1, 20, 100}};
    return problem_of(tiles_are_large() ? shapes[number % 2] : HeadShape{1, 2, 1, 12, 17},
                      tiles_are_large() && number % 2 == 1 ? DType::f16 : dtype(), lengths().queries,
                      lengths().keys, tiles);
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaNan, ::testing::ValuesIn(kChapters));

TEST_P(CudaNan, SpreadsToWhoSeesItAndNoFurther) {
  std::size_t number = 0;
  for (const auto& tiles : lengths().masks()) {
    const Problem p = problem(number++, tiles);
    const Inputs in = random_inputs(p, 31);
    const Result clean = run_cuda(p, in);
    const std::vector<index_t>& keys = lengths().some_keys;
    for (const index_t j : keys) {
      SCOPED_TRACE("key " + std::to_string(j));
      Inputs bad = in;
      bad.k.set(bad.k.index(0, j, 0, 11), kNan);
      const Result dirty = run_cuda(p, bad);
      expect_rows("out", clean.out, dirty.out, [&](index_t, index_t i, index_t) { return p.visible(i, j); });
      expect_lse(clean, dirty, [&](index_t, index_t i) { return p.visible(i, j); });
    }
    // In values, each key has a column of its own, from the last one on.
    const index_t last = p.shape.head_dim_v - 1;
    Inputs bad_values = in;
    for (std::size_t n = 0; n < keys.size(); ++n)
      bad_values.v.set(bad_values.v.index(0, keys[n], 0, last - static_cast<index_t>(n)), kNan);
    const Result dirty_values = run_cuda(p, bad_values);
    expect_rows("out", clean.out, dirty_values.out, [&](index_t, index_t i, index_t e) {
      const auto n = static_cast<std::size_t>(last - e);
      return n < keys.size() && p.visible(i, keys[n]);
    });
    expect_lse(clean, dirty_values, [](index_t, index_t) { return false; });
    for (const index_t row : lengths().some_queries) {
      SCOPED_TRACE("query " + std::to_string(row));
      Inputs bad = in;
      bad.q.set(bad.q.index(0, row, 1, 0), kNan);
      bool sees = false;
      for (index_t j = 0; j < p.k_rows; ++j) sees |= p.visible(row, j);
      const Result dirty = run_cuda(p, bad);
      expect_rows("out", clean.out, dirty.out,
                  [&](index_t h, index_t i, index_t) { return sees && h == 1 && i == row; });
      expect_lse(clean, dirty, [&](index_t h, index_t i) { return sees && h == 1 && i == row; });
    }
  }
}

// Infinities behave as IEEE arithmetic says in the oracle: a score of +inf gives NaN, one of -inf weight 0.
TEST_P(CudaNan, InfinitiesFollowTheOracle) {
  const std::vector<index_t>& keys = lengths().some_keys;
  for (const auto& tiles : lengths().masks()) {
    const Problem p = problem_of({1, 1, 1, 6, 9}, dtype(), lengths().queries, lengths().keys, tiles);
    Inputs bad_values = random_inputs(p, 14);
    index_t column = 0;
    for (const double inf : {kInf, -kInf})
      for (const index_t j : {keys[0], keys[keys.size() - 2], keys.back()}) {
        SCOPED_TRACE("key " + std::to_string(j));
        bad_values.v.set(bad_values.v.index(0, j, 0, column++), inf);
        Inputs in = random_inputs(p, 13);
        in.k.set(in.k.index(0, j, 0, 2), inf);
        expect_accurate(run_cuda(p, in), p, in);
      }
    expect_accurate(run_cuda(p, bad_values), p, bad_values);
    Inputs in = random_inputs(p, 15);
    in.q.set(in.q.index(0, 3, 0, 1), kInf);
    expect_accurate(run_cuda(p, in), p, in);
  }
}

// A value of infinity is worth weight times infinity, which is NaN where the weight underflows: rows that see
// key `heavy`, whose score is greater by 1000, have a weight of 0 for all others, in double as well; other
// rows have a weight for them. Before and after the infinite values, in the same step and in another one.
TEST_P(CudaNan, AnInfiniteValueWithoutWeightIsNan) {
  const std::vector<index_t>& keys = lengths().some_keys;
  for (const DType type : {dtype(), DType::f16})  // a weight of 16 bits has another range
    for (const auto& tiles : lengths().masks()) {
      Problem p = problem_of({1, 1, 1, 1, 9}, type, lengths().queries, lengths().keys, tiles);
      p.scale = 1;
      for (const index_t heavy : {keys[1], keys[keys.size() - 2] + 1}) {
        SCOPED_TRACE(text(type) + ", heavy key " + std::to_string(heavy));
        Inputs in = random_inputs(p, 16);
        for (index_t i = 0; i < p.q_rows; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
        for (index_t j = 0; j < p.k_rows; ++j) in.k.set(in.k.index(0, j, 0, 0), j == heavy ? 1000 : 0);
        for (std::size_t n = 0; n < keys.size(); ++n)
          in.v.set(in.v.index(0, keys[n], 0, static_cast<index_t>(n)), n % 2 == 0 ? kInf : -kInf);
        expect_accurate(run_cuda(p, in), p, in);
      }
    }
}

// Two infinities of one value cancel to NaN for those who see both, and only for them; in every row of the
// 16 that are searched, and copied in chapter 3, at a time.
TEST_P(CudaNan, EveryPlaceOfAStepIsSearched) {
  const Problem p = problem_of({1, 1, 1, 64, 64}, dtypes().back(), 65, 65, causal_tiles(65, 65));
  const Inputs clean = random_inputs(p, 3);
  for (index_t j = 16; j < 32; ++j) {
    SCOPED_TRACE("key " + std::to_string(j));
    Inputs in = clean;
    in.v.set(in.v.index(0, j, 0, 4 * (j - 16)), kInf);
    in.v.set(in.v.index(0, j + 20, 0, 4 * (j - 16)), -kInf);
    expect_accurate(run_cuda(p, in), p, in);
  }
}

// Scores of -inf before the first finite one, and rows that have nothing else. 0 * -inf makes dq of that
// column NaN for all others that see it, by IEEE and by the oracle.
TEST_P(CudaNan, ScoresOfMinusInfinityHaveNoWeight) {
  const index_t keys = tiles_are_large() ? 340 : 140, block = tiles_are_large() ? 164 : 64;
  const Problem p = problem_of({1, 1, 1, 2, 3}, dtype(), 50, keys, causal_tiles(50, keys));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 50; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < keys - 40; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const Result result = run_cuda(p, in, blocks_of(block, keys));
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -std::numeric_limits<float>::infinity());  // sees all but the last 49 keys
  EXPECT_EQ(result.out.get(0), 0.0);
  const BackwardInputs all = backward_inputs(p, in, random_tensor(p.dtype, p.out_shape(), 8));
  const Gradients got = run_backward_cuda(p, all);
  EXPECT_EQ(got.dq.get(0), 0.0);
  expect_accurate(got, p, all);
}

// Rows and keys that nobody sees may hold anything.
TEST_P(CudaNan, WhatIsHiddenMayHoldAnything) {
  struct Size {
    index_t rows, dim;
  };
  for (const Size size : {Size{61, 20}, {161, 128}})  // of all chapters; of chapter 3 besides
    for (const DType type : dtypes())
      for (const double junk : {kNan, kInf, -kInf}) {
        if (size.rows > 100 && !tiles_are_large()) break;
        SCOPED_TRACE(text(type) + ", rows " + std::to_string(size.rows));
        const index_t rows = size.rows, hidden = rows - 21;
        const Problem p = problem_of(
            {1, 1, 1, size.dim, size.dim}, type, rows, rows,
            {{{0, hidden}, {0, hidden}, {.hi = 0}}, {{hidden + 5, rows}, {hidden + 5, rows}, {-3, 0}}});
        const BackwardInputs in = random_backward_inputs(p, 77);
        BackwardInputs bad = in;
        for (index_t j = hidden; j < hidden + 5; ++j)
          for (Tensor* t : {&bad.q, &bad.k, &bad.v, &bad.dout, &bad.out})
            for (index_t e = 0; e < size.dim; ++e) t->set(t->index(0, j, 0, e), junk);
        EXPECT_TRUE(same_bits(run_cuda(p, {in.q, in.k, in.v}), run_cuda(p, {bad.q, bad.k, bad.v})));
        if (size.rows > 100) continue;
        EXPECT_TRUE(same_bits(run_backward_cuda(p, in), run_backward_cuda(p, bad)));
      }
}

}  // namespace
}  // namespace ringattn::test
