// NaN and infinity in chapter 3's backward: products multiply what is hidden by a weight of 0.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/cuda/spoilt_rows.h"
#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr index_t kQueries = 83, kKeys = 147;  // two warpgroups, three tiles of keys

std::vector<std::vector<Tile>> masks() {
  return {full_tiles(kQueries, kKeys),
          causal_tiles(kQueries, kKeys),
          // Two documents that meet inside a warpgroup of rows and a tile of keys.
          {{{0, 40}, {0, 71}, {}}, {{40, kQueries}, {71, kKeys}, {}}}};
}

class CudaSm90BackwardNan : public ::testing::Test {
 protected:
  void prepare(const std::vector<Tile>& tiles, DType dtype, index_t dim_v, index_t head_dim = 12) {
    p_ = problem_of({1, 2, 1, head_dim, dim_v}, dtype, kQueries, kKeys, tiles);
    in_ = std::make_unique<BackwardInputs>(random_backward_inputs(p_, 31));
    clean_ = std::make_unique<Gradients>(run_backward_cuda("sm_90a", p_, *in_));
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
    const Gradients got = run_backward_cuda("sm_90a", p_, dirty);
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

// In q, dout, out and lse of one row of head 1, as they are given: the rest of the row need not agree.
TEST_F(CudaSm90BackwardNan, OfAQueryReachesItsKeysAndNoFurther) {
  for (const auto& tiles : masks()) {
    prepare(tiles, DType::bf16, 70);
    for (const index_t row : {0, 63}) {
      SCOPED_TRACE("query " + std::to_string(row));
      const auto own = [&](index_t i) { return i == row; };
      BackwardInputs bad = *in_;
      bad.q.set(bad.q.index(0, row, 1, 3), kNan);
      expect(bad, 1, own, kAlways, kAlways);
      bad = *in_;
      bad.dout.set(bad.dout.index(0, row, 1, 69), kNan);
      expect(bad, 1, own, kAlways, [](index_t e) { return e == 69; });
      bad = *in_;
      bad.lse[static_cast<std::size_t>(kQueries + row)] = std::numeric_limits<float>::quiet_NaN();
      expect(bad, 1, own, kAlways, kAlways);
    }
  }
}

// In k and v of one key, with out and lse formed anew: every row that sees the key is spoilt, and so are the
// keys that such a row sees; dv does not depend on v. With head_dim 101 the columns of dq are made of other
// columns of the keys by each warpgroup.
TEST_F(CudaSm90BackwardNan, OfAKeyReachesTheRowsThatSeeIt) {
  for (const index_t head_dim : {12, 101})
    for (const auto& tiles : masks()) {
      prepare(tiles, DType::f16, 17, head_dim);
      for (const index_t j : {0, 70, 146}) {
        SCOPED_TRACE("key " + std::to_string(j) + ", head_dim " + std::to_string(head_dim));
        const auto sees = [&](index_t i) { return p_.visible(i, j); };
        BackwardInputs bad = *in_;
        bad.k.set(bad.k.index(0, j, 0, head_dim - 1), kNan);
        expect(reformed(p_, bad), -1, sees, kAlways, kAlways);
        bad = *in_;
        bad.v.set(bad.v.index(0, j, 0, 16), kNan);
        expect(reformed(p_, bad), -1, sees, kAlways, kNever);
      }
    }
}

TEST_F(CudaSm90BackwardNan, RowsWithLseOfMinusInfinityAddNothing) {
  for (const auto& tiles : masks()) {
    prepare(tiles, DType::bf16, 17);
    BackwardInputs in = *in_;
    const index_t rows[] = {2, 15, 64, 82};
    for (const index_t i : rows)
      for (const index_t head : {0, 1})
        in.lse[static_cast<std::size_t>(head * kQueries + i)] = -std::numeric_limits<float>::infinity();
    const Gradients got = run_backward_cuda("sm_90a", p_, in);
    BackwardInputs bad = in;
    for (const index_t i : rows)
      for (const index_t head : {0, 1})
        for (Tensor* t : {&bad.q, &bad.dout, &bad.out})
          for (index_t e = 0; e < t->shape[3]; ++e) t->set(t->index(0, i, head, e), kNan);
    for (const index_t i : rows)
      for (index_t e = 0; e < 12; ++e) EXPECT_EQ(got.dq.get(got.dq.index(0, i, 0, e)), 0.0);
    EXPECT_TRUE(same_bits(run_backward_cuda("sm_90a", p_, bad), got));
  }
}

}  // namespace
}  // namespace ringattn::test
