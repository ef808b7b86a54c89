// Fault cases of other projects, with the right values (the case numbers of the project's list).
#include <cmath>
#include <limits>

#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// 2e-5 absolute as the cases state it, and what fp32 can hold of large values.
void expect_lse(const Result& result, std::size_t row, double truth) {
  EXPECT_NEAR(result.lse[row], truth, 2e-5 + 0x1p-23 * std::fabs(truth)) << "row " << row;
}

struct Digest {
  double sum = 0, magnitude = 0;
};
Digest digest(const Tensor& t) {
  Digest d;
  for (const double x : t.doubles()) d.sum += x, d.magnitude += std::fabs(x);
  return d;
}
double tolerance(const Tensor& t) { return 2e-5 * std::sqrt(static_cast<double>(t.size())); }

// A5, test 1: every logit -200; the block visited first may be one that a row does not see.
TEST_P(EveryIsa, A5RowsWithStronglyNegativeLogitsDoNotVanish) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 4, 8, causal_tiles(4, 8));
  const Inputs in{filled(p.dtype, p.q_shape(), -20), filled(p.dtype, p.k_shape(), 10),
                  key_indices(p.dtype, p.v_shape())};
  const double out[] = {2, 2.5, 3, 3.5};
  const double lse[] = {-198.390562088, -198.208240531, -198.054089851, -197.920558458};
  for (const Blocks& blocks : {Blocks{{0, 8}}, Blocks{{0, 4}, {4, 8}}, Blocks{{4, 8}, {0, 4}}}) {
    const Result r = run_cpu(p, in, GetParam(), blocks);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(r.out.get(i), out[i], 2e-5);
      expect_lse(r, i, lse[i]);
    }
  }
}

// A5, test 2, on one rank: the blocks of four ranks in every rotation.
TEST_P(EveryIsa, A5BlocksInRingOrder) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 64, 64, causal_tiles(64, 64));
  const Inputs in{filled(p.dtype, p.q_shape(), -20), filled(p.dtype, p.k_shape(), 10),
                  key_indices(p.dtype, p.v_shape())};
  for (index_t rank = 0; rank < 4; ++rank) {
    Blocks blocks;
    for (index_t hop = 0; hop < 4; ++hop) {
      const index_t owner = (rank + 4 - hop) % 4;
      blocks.push_back({owner * 16, owner * 16 + 16});
    }
    const Result r = run_cpu(p, in, GetParam(), blocks);
    for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(r.out.get(i), static_cast<double>(i) / 2, 4e-5);
    expect_lse(r, 63, -195.841116917);
  }
}

// A6, test 1: partial results must not be rounded to bf16 between hops. All rows alike, whoever owns them.
TEST_P(EveryIsa, A6PartialResultsKeepTheirPrecision) {
  for (const index_t ranks : {8, 16}) {
    Problem p =
        problem_of({1, 1, 1, 8, 8}, DType::bf16, 8 * ranks, 8 * ranks, full_tiles(8 * ranks, 8 * ranks));
    Inputs in{filled(p.dtype, p.q_shape(), 0), filled(p.dtype, p.k_shape(), 0),
              filled(p.dtype, p.v_shape(), 1.0078125)};
    for (index_t j = 0; j < 8; ++j)
      for (index_t e = 0; e < 8; ++e) in.v.set(in.v.index(0, j, 0, e), 1.0);
    for (index_t rank = 0; rank < ranks; rank += 3) {
      Blocks blocks;
      for (index_t hop = 0; hop < ranks; ++hop) {
        const index_t owner = (rank + ranks - hop) % ranks;
        blocks.push_back({owner * 8, owner * 8 + 8});
      }
      const Result r = run_cpu(p, in, GetParam(), blocks);
      for (std::size_t i = 0; i < r.out.size(); ++i) ASSERT_EQ(r.out.get(i), 1.0078125) << "element " << i;
    }
  }
}

// A9, test 2, the forward half.
TEST_P(EveryIsa, A9ForwardDigest) {
  const Problem p = problem_of({1, 2, 2, 8, 8}, DType::f32, 12, 12, causal_tiles(12, 12));
  const Result r = run_cpu(p, generated_inputs(p), GetParam(), {{4, 8}, {0, 4}, {8, 12}});
  EXPECT_NEAR(digest(r.out).sum, 3.116377645944, tolerance(r.out));
}

// A16: which KV head a query head reads.
TEST_P(EveryIsa, A16GroupsOfQueryHeadsReadTheirKvHead) {
  Problem p = problem_of({1, 6, 2, 4, 4}, DType::f32, 4, 4, full_tiles(4, 4));
  Inputs in{filled(p.dtype, p.q_shape(), 0), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 10)};
  for (index_t j = 0; j < 4; ++j)
    for (index_t e = 0; e < 4; ++e) in.v.set(in.v.index(0, j, 1, e), 20);
  const Result means = run_cpu(p, in, GetParam());
  for (index_t h = 0; h < 6; ++h)
    for (index_t i = 0; i < 4; ++i) EXPECT_EQ(means.out.get(means.out.index(0, i, h, 0)), h < 3 ? 10 : 20);

  p = problem_of({1, 6, 2, 4, 4}, DType::f32, 8, 8, causal_tiles(8, 8));
  const Result r = run_cpu(p, generated_inputs(p), GetParam());
  const double heads[] = {-0.027146242158, -0.118822061317, -0.115583853123,
                          -0.254281503868, -0.244334864478, -0.251611767116};
  for (index_t h = 0; h < 6; ++h)
    EXPECT_NEAR(r.out.get(r.out.index(0, 7, h, 0)), heads[h], 2e-5) << "head " << h;
}

// A19.
TEST_P(EveryIsa, A19LseIsNaturalAndScaledOnce) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 1, 2, full_tiles(1, 2));
  Inputs in{filled(p.dtype, p.q_shape(), 0), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 1)};
  expect_lse(run_cpu(p, in, GetParam()), 0, 0.693147180560);              // base 2 would be 1
  p = problem_of({1, 1, 1, 16, 16}, DType::f32, 1, 1, full_tiles(1, 1));  // scale 1/4
  in = {filled(p.dtype, p.q_shape(), 2), filled(p.dtype, p.k_shape(), 1), filled(p.dtype, p.v_shape(), 1)};
  expect_lse(run_cpu(p, in, GetParam()), 0, 8);  // q.k = 32; scaled twice it would be 2
}

// A23: one shard's logits dwarf another's, in both orders.
TEST_P(EveryIsa, A23ShardsOfVeryDifferentLogits) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 4, 4, full_tiles(4, 4));
  for (const double sign : {1.0, -1.0}) {
    Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), 0),
              filled(p.dtype, p.v_shape(), 0)};
    const double v[] = {1, 2, 3, 5};
    for (std::size_t j = 0; j < 4; ++j) {
      in.k.set(j, j < 2 ? 0 : sign * 200);
      in.v.set(j, v[j]);
    }
    for (const Blocks& blocks : {Blocks{{0, 2}, {2, 4}}, Blocks{{2, 4}, {0, 2}}, Blocks{{0, 4}}}) {
      const Result r = run_cpu(p, in, GetParam(), blocks);
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(r.out.get(i), sign > 0 ? 4.0 : 1.5, 2e-5);
        expect_lse(r, i, sign > 0 ? 200.693147181 : 0.693147181);
      }
    }
  }
}

// A35, D = 20; the other dimensions are tested against the oracle.
TEST_P(EveryIsa, A35HeadDim20) {
  const Problem p = problem_of({1, 1, 1, 20, 20}, DType::f32, 8, 8, full_tiles(8, 8));
  const Result r = run_cpu(p, generated_inputs(p), GetParam());
  EXPECT_NEAR(digest(r.out).sum, 2.725795429301, tolerance(r.out));
  EXPECT_NEAR(digest(r.out).magnitude, 26.223095946226, tolerance(r.out));
  double lse = 0;
  for (const float x : r.lse) lse += double{x};
  EXPECT_NEAR(lse, 16.509300851487, 2e-5 * std::sqrt(8.0));
}

// A36: as many heads as rows, where a mixed-up layout still fits.
TEST_P(EveryIsa, A36HeadsEqualRows) {
  const Problem p = problem_of({2, 16, 16, 64, 64}, DType::f32, 16, 16, causal_tiles(16, 16));
  const Result r = run_cpu(p, generated_inputs(p), GetParam());
  const double first[] = {0.180592820056, -0.318222252151, 0.035645328182};
  for (index_t e = 0; e < 3; ++e) EXPECT_NEAR(r.out.get(r.out.index(0, 5, 3, e)), first[e], 2e-5);
  EXPECT_NEAR(digest(r.out).sum, -332.860489101, tolerance(r.out));
  EXPECT_NEAR(digest(r.out).magnitude, 6639.677963138, tolerance(r.out));
}

// A38: objects of different shapes, alive together and used in turn, do not touch each other.
TEST_P(EveryIsa, A38CallsLeaveNothingBehind) {
  const Problem x = problem_of({1, 12, 12, 4, 4}, DType::f32, 16, 16, causal_tiles(16, 16));
  Problem y = problem_of({1, 8, 2, 4, 4}, DType::f32, 24, 24, window_tiles(24, 24, 5, 0));
  const Inputs x_in = generated_inputs(x), y_in = generated_inputs(y);
  const auto x_kernel = make_cpu_kernel(config_of(x, GetParam())),
             y_kernel = make_cpu_kernel(config_of(y, GetParam()));
  const Result first = run(*x_kernel, x, x_in);
  EXPECT_NEAR(digest(first.out).sum, -1.498664949130, tolerance(first.out));
  const Result other = run(*y_kernel, y, y_in);
  EXPECT_NEAR(digest(other.out).sum, 23.735160704690, tolerance(other.out));
  EXPECT_TRUE(same_bits(run(*x_kernel, x, x_in), first));
  y.tiles = full_tiles(24, 24);
  run(*y_kernel, y, y_in);
  EXPECT_TRUE(same_bits(run(*x_kernel, x, x_in), first));
}

// A39: a window of 10 keys; whole blocks are hidden before the first visible one.
TEST_P(EveryIsa, A39WindowLeavesTheFirstBlocksHidden) {
  Problem p = problem_of({1, 1, 1, 4, 4}, DType::f32, 640, 640, window_tiles(640, 640, 9, 0));
  const Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), 1),
                  key_indices(p.dtype, p.v_shape())};
  for (const index_t block : {32, 64, 512, 640}) {
    const Result r = run_cpu(p, in, GetParam(), blocks_of(block, 640));
    const auto row = [&](index_t i) { return r.out.get(r.out.index(0, i, 0, 0)); };
    EXPECT_NEAR(row(5), 2.5, 2e-5);
    EXPECT_NEAR(row(10), 5.5, 2e-5);
    EXPECT_NEAR(row(511), 506.5, 1e-4);
    EXPECT_NEAR(row(512), 507.5, 1e-4);
    EXPECT_NEAR(row(639), 634.5, 1e-4);
    expect_lse(r, 0, 2);
    expect_lse(r, 639, 4.302585093);
  }
}

// A40, test 1: a hidden key next to a score of -20000.
TEST_P(EveryIsa, A40HiddenIsLowerThanAnyScore) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 2, 2, {{{0, 2}, {0, 1}, {}}});
  Inputs in{filled(p.dtype, p.q_shape(), 0), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 1)};
  in.q.set(0, -20000);
  in.k.set(0, 1);
  in.v.set(1, 100);
  const Result r = run_cpu(p, in, GetParam());
  EXPECT_EQ(r.out.get(0), 1);
  EXPECT_EQ(r.out.get(1), 1);
  expect_lse(r, 0, -20000);
  expect_lse(r, 1, 0);
}

// A40, tests 2 and 3: products beyond the range of the 16-bit formats.
TEST_P(EveryIsa, A40ScoresAreNotFormedIn16Bits) {
  Problem p = problem_of({1, 1, 1, 64, 64}, DType::f16, 4, 4, full_tiles(4, 4));
  Inputs in{filled(p.dtype, p.q_shape(), 64), filled(p.dtype, p.k_shape(), 64),
            key_indices(p.dtype, p.v_shape())};
  Result r = run_cpu(p, in, GetParam());
  EXPECT_EQ(r.out.get(0), 1.5);
  expect_lse(r, 0, 32769.3863);
  p = problem_of({1, 1, 1, 64, 64}, DType::bf16, 1, 1, full_tiles(1, 1));
  in = {filled(p.dtype, p.q_shape(), 133120), filled(p.dtype, p.k_shape(), 133120),
        filled(p.dtype, p.v_shape(), 133120)};
  r = run_cpu(p, in, GetParam());
  EXPECT_EQ(r.out.get(0), 133120);
  expect_lse(r, 0, 1.41767475e11);
}

// A40, test 4.
TEST_P(EveryIsa, A40ScaleMayBeNegativeOrZero) {
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 1, 4, full_tiles(1, 4));
  Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 0)};
  in.k.set(1, 200);
  const double v[] = {1, 2, 3, 5};
  for (std::size_t j = 0; j < 4; ++j) in.v.set(j, v[j]);
  p.scale = -1;
  Result r = run_cpu(p, in, GetParam());
  EXPECT_NEAR(r.out.get(0), 3.0, 2e-5);
  expect_lse(r, 0, 1.098612289);
  p.scale = 0;
  r = run_cpu(p, in, GetParam());
  EXPECT_NEAR(r.out.get(0), 2.75, 2e-5);
  expect_lse(r, 0, 1.386294361);
}

TEST_P(EveryIsa, RowsThatSeeNothingAreZeroAndMinusInfinity) {
  for (const DType dtype : kDtypes) {
    Problem p = problem_of({1, 2, 1, 5, 3}, dtype, 53, 20, {});
    const Inputs in = random_inputs(p, 1);
    Result r = run_cpu(p, in, GetParam());
    for (std::size_t i = 0; i < r.out.size(); ++i) ASSERT_EQ(r.out.get(i), 0);
    for (const float x : r.lse) ASSERT_EQ(x, kNegInf);
    p.tiles = {{{7, 50}, {3, 9}, {-30, -28}}};  // rows 31 .. 38 only
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

}  // namespace
}  // namespace ringattn::test
