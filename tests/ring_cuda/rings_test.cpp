// Forward and backward of whole rings against float64: every carrier on 1 to 5 ranks, every kind of mask, in
// changing layouts, shapes, dtypes, modes and orders of the streams.
#include <gtest/gtest.h>

#include "tests/attention/random_problem.h"
#include "tests/ring_cuda/device_rings.h"
#include "tests/support/sanitized.h"

namespace ringattn::test {
namespace {

// Everybody sees the first `prefix` keys, the rest is causal.
MaskCase prefix_case(index_t length, index_t prefix) {
  const std::vector<Tile> tiles = {{{0, length}, {0, prefix}, {}},
                                   {{prefix, length}, {prefix, length}, {-kUnbounded, 0}}};
  return {Mask::tiles(length, length, tiles),
          [=](index_t i, index_t j) { return j < prefix || (i >= prefix && j <= i); }};
}

// Longformer (arXiv:2004.05150, section 3.1): a window for everybody, and `global` tokens that see all and
// that all see.
MaskCase longformer_case(index_t length, index_t global, index_t beside) {
  const std::vector<Tile> tiles = {{{0, length}, {0, global}, {}},
                                   {{0, global}, {global, length}, {}},
                                   {{global, length}, {global, length}, {-beside, beside}}};
  return {Mask::tiles(length, length, tiles), [=](index_t i, index_t j) {
            return i < global || j < global || (j - i <= beside && i - j <= beside);
          }};
}

// Primes, unlike lengths of q and k, rows that see nothing, fewer tokens than ranks, rows behind the last
// document.
std::vector<MaskCase> masks() {
  const std::vector<index_t> cu{0, 11, 11, 24, 41}, cu_q{0, 3, 8, 19}, cu_k{0, 7, 7, 29};
  return {full_case(29, 41),
          causal_case(37, 37),
          causal_case(19, 7),
          window_case(53, 53, {.left = 12, .right = 0}),
          window_case(23, 31, {.left = 5, .right = 3}),
          document_case(43, 43, cu, cu, {.left = -1, .right = 0}),
          document_case(19, 31, cu_q, cu_k, {}),
          prefix_case(31, 7),
          longformer_case(47, 3, 6),
          full_case(3, 2),
          random_tiles(5, 29, 37)};
}

// Shapes with and without groups, with dims that nothing divides.
Problem problem_of(const MaskCase& mask, std::size_t number) {
  const HeadShape shapes[] = {{.num_heads = 2, .num_heads_kv = 1, .head_dim = 20},
                              {.num_heads = 1, .num_heads_kv = 1, .head_dim = 8, .head_dim_v = 5},
                              {.batch = 2, .num_heads = 1, .num_heads_kv = 1, .head_dim = 33},
                              {.num_heads = 6, .num_heads_kv = 2, .head_dim = 16}};
  const DType dtypes[] = {DType::f32, DType::bf16, DType::f16};
  Problem problem{.shape = shapes[number % 4], .dtype = dtypes[number % 3], .mask = mask.mask};
  if (problem.shape.head_dim % 2 == 0 && mask.mask.positions_align() && number % 5 < 2)
    problem.rope = {.pairing = number % 5 == 0 ? Rope::Pairing::half : Rope::Pairing::interleaved,
                    .position_offset = 131064};
  return problem;
}

void expect_right(const DeviceRing& ring, const RandomProblem& p, int ranks, unsigned seed) {
  SCOPED_TRACE(text(ring) + ", " + describe(p, ranks));
  const Inputs in = random_inputs(p.problem, seed);
  const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
  const auto sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), ranks);
  const GradientAnswer got = run_ring_gradients(ring, p.problem, sharding, in);
  const Bound bound = error_bound(p, in, exact.forward);
  EXPECT_LE(max_error(got.forward.out.data, exact.forward.out.data), bound.out);
  EXPECT_LE(max_error(got.forward.lse, exact.forward.lse), bound.lse);
  const GradientBound gradients = gradient_bound(p.problem, in, p.visible, exact);
  EXPECT_LE(max_error(got.dq.data, exact.dq.data), gradients.dq);
  EXPECT_LE(max_error(got.dk.data, exact.dk.data), gradients.dk);
  EXPECT_LE(max_error(got.dv.data, exact.dv.data), gradients.dv);
}

class CudaRings : public testing::TestWithParam<std::tuple<Carrier, int>> {};

// Of the 11 x 5 x 5 combinations one fifth, as in a Latin square: each carrier meets each mask on one number
// of ranks, and each number of ranks meets it over one carrier.
TEST_P(CudaRings, AreRightForTheirMasks) {
  const auto& [carrier, ranks] = GetParam();
  const auto all = carriers();
  const auto place =
      static_cast<std::size_t>(std::ranges::find(all, carrier.name, &Carrier::name) - all.begin());
  const auto sights = masks();
  for (std::size_t i = 0; i < sights.size(); ++i) {
    if ((place + static_cast<std::size_t>(ranks) + i) % 5 != 0) continue;
    // So that each carrier and number of ranks meets other shapes, layouts and dtypes.
    const std::size_t number = place * 7 + static_cast<std::size_t>(ranks) * 11 + i;
    if (left_out(number, 3)) continue;
    const LayoutKind layouts[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};
    const RandomProblem p{problem_of(sights[i], number), sights[i].visible, layouts[number / 2 % 3]};
    const auto taken = chapters(p.problem);
    const DeviceRing ring{.carrier = carrier,
                          .mode = number % 2 == 0 ? Mode::overlap : Mode::blocking,
                          .seed = number,
                          .chapter = taken[number / 3 % taken.size()]};
    expect_right(ring, p, ranks, static_cast<unsigned>(number));
  }
}

// A NaN in a key reaches the queries that see it, and through them what backward says it reaches; all else
// keeps its bits (the formulas are checked by tests/attention/gradient_nan_test.cpp on the CPU).
TEST(CudaRing, ANaNGoesNoFartherThanItIsSeen) {
  const MaskCase mask = window_case(37, 37, {.left = 4, .right = 2});
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 12}, .mask = mask.mask};
  const auto sharding = Sharding::make(LayoutKind::zigzag, 37, 37, 3);
  const DeviceRing ring{.carrier = carriers()[0], .seed = 3};
  Inputs in = random_inputs(problem, 8);
  const GradientAnswer clean = run_ring_gradients(ring, problem, sharding, in);
  constexpr index_t kKey = 17;
  in.k.at(0, kKey, 0, 3) = std::nan("");
  const GradientAnswer got = run_ring_gradients(ring, problem, sharding, in);
  const auto expect = [](double x, double without, bool lost, const std::string& what) {
    if (lost) {
      EXPECT_TRUE(std::isnan(x)) << what << " is " << x;
    } else {
      EXPECT_EQ(x, without) << what;
    }
  };
  for (index_t row = 0; row < 37; ++row) {
    bool shared = false;  // some query sees both this key and the one with the NaN
    for (index_t i = 0; i < 37; ++i) shared = shared || (mask.visible(i, row) && mask.visible(i, kKey));
    const std::string at = " of row " + std::to_string(row);
    for (const index_t h : {0, 1}) {
      const bool sees = mask.visible(row, kKey);
      expect(got.forward.out.at(0, row, h, 5), clean.forward.out.at(0, row, h, 5), sees, "out" + at);
      expect(got.dq.at(0, row, h, 5), clean.dq.at(0, row, h, 5), sees, "dq" + at);
    }
    expect(got.dk.at(0, row, 0, 5), clean.dk.at(0, row, 0, 5), shared, "dk" + at);
    expect(got.dv.at(0, row, 0, 5), clean.dv.at(0, row, 0, 5), shared, "dv" + at);
  }
}

INSTANTIATE_TEST_SUITE_P(Carriers, CudaRings,
                         testing::Combine(testing::ValuesIn(carriers()), testing::Range(1, 6)),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace ringattn::test
