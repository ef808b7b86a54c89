// bf16, which is multiplied by a dot-product instruction where the machine has one and widened where it has
// not: both against the oracle, and how 16-bit blocks travel.
#include <cmath>
#include <limits>

#include "src/error.h"
#include "tests/kernels/backward_support.h"
#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The first rows of the last document are a group of 48 queries and 256 keys away from nothing that divides.
std::vector<Tile> documents(index_t q_rows, index_t k_rows) {
  return {{{0, 53}, {0, 259}, {}}, {{53, q_rows}, {259, k_rows}, {.hi = 259 - 53 + 40}}};
}

// 61 queries are two groups, 523 keys three steps of 256 and nine blocks of 64.
std::vector<std::vector<Tile>> masks() {
  return {full_tiles(61, 523), causal_tiles(61, 523), window_tiles(61, 523, 100, 3), documents(61, 523)};
}

Problem bf16_problem(HeadShape shape, std::vector<Tile> tiles) {
  return problem_of(shape, DType::bf16, 61, 523, std::move(tiles));
}

TEST_P(EveryIsa, Bf16OfOddHeadDimsAndEveryMask) {
  unsigned seed = 0;
  for (const index_t dim : {1, 7, 63, 65, 80})
    for (const auto& tiles : masks()) {
      SCOPED_TRACE("head_dim " + std::to_string(dim) + ", mask " + std::to_string(seed % 4));
      const Problem p = bf16_problem({1, 2, 1, dim, dim + 2}, tiles);
      const BackwardInputs in = random_backward_inputs(p, ++seed);
      expect_accurate(run_cpu(p, {in.q, in.k, in.v}, GetParam()), p, {in.q, in.k, in.v});
      expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
    }
}

// A ring deals the keys out in blocks; spans of 2,048 keys are summed apart.
TEST_P(EveryIsa, Bf16InUnevenBlocksAndSeveralSpans) {
  if (GetParam() == cpu_isas().back() && cpu_isas().size() > 1)
    GTEST_SKIP() << "slow, and widens as others do";
  const Problem p = problem_of({1, 2, 1, 20, 20}, DType::bf16, 67, 4507, causal_tiles(67, 4507));
  const BackwardInputs in = random_backward_inputs(p, 3);
  for (const index_t rows : {4507, 2311, 601}) {
    SCOPED_TRACE(rows);
    expect_accurate(run_cpu(p, {in.q, in.k, in.v}, GetParam(), blocks_of(rows, 4507), 2), p,
                    {in.q, in.k, in.v});
    expect_accurate(run_backward_cpu(p, in, GetParam(), blocks_of(rows, 4507), 2), p, in);
  }
}

TEST_P(EveryIsa, Bf16BitsDoNotDependOnThreads) {
  const Problem p = problem_of({2, 6, 2, 33, 17}, DType::bf16, 211, 307, causal_tiles(211, 307));
  const BackwardInputs in = random_backward_inputs(p, 9);
  const Inputs forward{in.q, in.k, in.v};
  const Result one = run_cpu(p, forward, GetParam());
  const Gradients gradients = run_backward_cpu(p, in, GetParam());
  for (const int threads : {2, 5}) {
    EXPECT_TRUE(same_bits(one, run_cpu(p, forward, GetParam(), {}, threads))) << threads;
    EXPECT_TRUE(same_bits(gradients, run_backward_cpu(p, in, GetParam(), {}, threads))) << threads;
  }
}

// A NaN shares its cell of 32 bits with a neighbour along head_dim, or along keys, that others may see.
TEST_P(EveryIsa, Bf16NanSpreadsToWhoSeesItAndNoFurther) {
  for (const auto& tiles : masks()) {
    const Problem p = bf16_problem({1, 1, 1, 7, 5}, tiles);
    const Inputs in = random_inputs(p, 31);
    const Result clean = run_cpu(p, in, GetParam());
    for (const index_t j : {0, 1, 63, 64, 255, 256, 258, 259, 471, 480, 511, 522}) {
      SCOPED_TRACE("key " + std::to_string(j));
      Inputs bad_k = in, bad_v = in;
      bad_k.k.set(bad_k.k.index(0, j, 0, 6), kNan);
      bad_v.v.set(bad_v.v.index(0, j, 0, 3), kNan);
      const Result k = run_cpu(p, bad_k, GetParam()), v = run_cpu(p, bad_v, GetParam());
      for (index_t i = 0; i < p.q_rows; ++i)
        for (index_t e = 0; e < 5; ++e) {
          const std::size_t at = clean.out.index(0, i, 0, e);
          if (p.visible(i, j)) {
            ASSERT_TRUE(std::isnan(k.out.get(at))) << i << ", " << e;
          } else {
            ASSERT_EQ(k.out.get(at), clean.out.get(at)) << i << ", " << e;
          }
          if (p.visible(i, j) && e == 3) {
            ASSERT_TRUE(std::isnan(v.out.get(at))) << i;
          } else {
            ASSERT_EQ(v.out.get(at), clean.out.get(at)) << i << ", " << e;
          }
        }
    }
  }
}

// dk and dv of keys that a row of NaN does not see, and dq of rows that see no NaN key, keep their bits.
TEST_P(EveryIsa, Bf16NanInBackwardReachesItsPairsAlone) {
  for (const auto& tiles : masks()) {
    const Problem p = bf16_problem({1, 1, 1, 7, 5}, tiles);
    const BackwardInputs in = random_backward_inputs(p, 31);
    const Gradients clean = run_backward_cpu(p, in, GetParam());
    for (const index_t i : {0, 1, 14, 47, 48, 52, 53, 60}) {
      SCOPED_TRACE("row " + std::to_string(i));
      for (Tensor BackwardInputs::*which : {&BackwardInputs::q, &BackwardInputs::dout}) {
        BackwardInputs bad = in;
        (bad.*which).set((bad.*which).index(0, i, 0, 4), kNan);
        const Gradients got = run_backward_cpu(p, bad, GetParam());
        for (index_t j = 0; j < p.k_rows; ++j) {
          const std::size_t at = clean.dk.index(0, j, 0, 4);
          if (p.visible(i, j)) {
            ASSERT_TRUE(std::isnan(got.dk.get(at))) << j;
          } else {
            ASSERT_EQ(got.dk.get(at), clean.dk.get(at)) << j;
            ASSERT_EQ(got.dv.get(clean.dv.index(0, j, 0, 4)), clean.dv.get(clean.dv.index(0, j, 0, 4))) << j;
          }
        }
      }
    }
    for (const index_t j : {0, 255, 256, 259, 511, 522}) {
      SCOPED_TRACE("key " + std::to_string(j));
      BackwardInputs bad = in;
      bad.k.set(bad.k.index(0, j, 0, 3), kNan);
      const Gradients got = run_backward_cpu(p, bad, GetParam());
      for (index_t i = 0; i < p.q_rows; ++i) {
        const std::size_t at = clean.dq.index(0, i, 0, 3);
        if (p.visible(i, j)) {
          ASSERT_TRUE(std::isnan(got.dq.get(at))) << i;
        } else {
          ASSERT_EQ(got.dq.get(at), clean.dq.get(at)) << i;
        }
      }
    }
  }
}

TEST_P(EveryIsa, Bf16HiddenKeysMayHoldAnything) {
  const Problem p = bf16_problem({1, 1, 1, 20, 20}, {{{0, 61}, {0, 301}, {}}, {{0, 61}, {306, 523}, {}}});
  const Inputs in = random_inputs(p, 77);
  const Result clean = run_cpu(p, in, GetParam());
  for (const double junk : {kNan, kInf, -kInf, 1e-40, 3e38}) {
    SCOPED_TRACE(junk);
    Inputs bad = in;
    for (index_t j = 301; j < 306; ++j)
      for (index_t e = 0; e < 20; ++e) {
        bad.k.set(bad.k.index(0, j, 0, e), junk);
        bad.v.set(bad.v.index(0, j, 0, e), junk);
      }
    EXPECT_TRUE(same_bits(clean, run_cpu(p, bad, GetParam())));
  }
}

void multiply(Tensor& tensor, double factor) {
  for (std::size_t i = 0; i < tensor.size(); ++i) tensor.set(i, tensor.get(i) * factor);
}

// The instruction takes and returns numbers below 2^-126 as 0. Powers of two, so that nothing is rounded but
// what becomes denormal.
TEST_P(EveryIsa, Bf16OfExtremeMagnitudes) {
  struct Extreme {
    const char* what;
    double q, k, v, scale;
  };
  for (const Extreme& x : {Extreme{"denormal q", 0x1p-128, 1, 1, 0x1p126},
                           {"denormal k", 1, 0x1p-127, 1, 0x1p124},
                           {"denormal k of huge q", 0x1p114, 0x1p-127, 1, 0x1p10},
                           {"denormal products", 0x1p-64, 0x1p-64, 1, 0x1p126},
                           {"a factor below fp32", 0x1p100, 0x1p30, 1, 0x1p-132},
                           {"a denormal factor", 1, 0x1p126, 1, 0x1p-128},
                           {"a huge factor", 0x1p-100, 1, 1, 0x1p98},
                           {"denormal v", 1, 1, 0x1p-130, 0.25},
                           {"v with denormal products", 1, 1, 0x1p-122, 0.25},
                           {"huge v", 1, 1, 0x1p120, 0.25}}) {
    SCOPED_TRACE(x.what);
    Problem p = bf16_problem({1, 1, 1, 9, 7}, causal_tiles(61, 523));
    p.scale = x.scale;
    Inputs in = random_inputs(p, 5);
    multiply(in.q, x.q);
    multiply(in.k, x.k);
    multiply(in.v, x.v);
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

// A loss that is a mean over many tokens has small gradients; what is not small enough to be flushed is
// right.
TEST_P(EveryIsa, Bf16GradientsOfExtremeMagnitudes) {
  struct Extreme {
    const char* what;
    double q, k, v, dout, scale;
  };
  for (const Extreme& x : {Extreme{"small dout", 1, 1, 1, 0x1p-40, 0.25},
                           {"tiny dout", 1, 1, 1, 0x1p-110, 0.25},
                           {"tiny dout and v", 1, 1, 0x1p-60, 0x1p-50, 0.25},
                           {"tiny k", 1, 0x1p-70, 1, 0x1p-20, 0x1p66},
                           {"tiny q", 0x1p-70, 1, 1, 0x1p-20, 0x1p66},
                           {"denormal q", 0x1p-128, 1, 1, 1, 0x1p126},
                           {"denormal k", 1, 0x1p-127, 1, 1, 0x1p124},
                           {"huge v, tiny dout", 1, 1, 0x1p100, 0x1p-100, 0.25}}) {
    SCOPED_TRACE(x.what);
    Problem p = bf16_problem({1, 1, 1, 9, 7}, causal_tiles(61, 523));
    p.scale = x.scale;
    Inputs in = random_inputs(p, 5);
    multiply(in.q, x.q);
    multiply(in.k, x.k);
    multiply(in.v, x.v);
    Tensor dout = random_tensor(p.dtype, p.out_shape(), 6);
    multiply(dout, x.dout);
    const BackwardInputs backward = backward_inputs(p, in, dout);
    expect_accurate(run_backward_cpu(p, backward, GetParam()), p, backward);
  }
}

TEST_P(EveryIsa, Bf16OfEveryScale) {
  for (const double scale : {-0.3, 0.0, 1.0, 37.0, 3e-39}) {
    SCOPED_TRACE(scale);
    Problem p = bf16_problem({1, 2, 1, 12, 20}, window_tiles(61, 523, 300, 2));
    p.scale = scale;
    const BackwardInputs in = random_backward_inputs(p, 6);
    expect_accurate(run_cpu(p, {in.q, in.k, in.v}, GetParam()), p, {in.q, in.k, in.v});
    expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
  }
}

// Scores that rise at every key, so that probabilities that are rounded already are scaled again.
TEST_P(EveryIsa, Bf16OfRisingScores) {
  for (const double slope : {3.0, 20.0, -20.0}) {
    Problem p = problem_of({1, 1, 1, 1, 4}, DType::bf16, 50, 251, full_tiles(50, 251));
    p.scale = slope;
    const Inputs in{filled(p.dtype, p.q_shape(), 1), key_indices(p.dtype, p.k_shape()),
                    random_tensor(p.dtype, p.v_shape(), 8)};
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

// packed.h: pairs along head_dim in panels of 8 keys, then for each 64 keys pairs along keys in panels of 8
// columns; rows, columns and an odd head_dim are filled up with zeros.
TEST_P(EveryIsa, SixteenBitBlocksTravelInPairs) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Problem p = problem_of({2, 3, 3, 5, 13}, dtype, 1, 77, {});
    const Inputs in = random_inputs(p, 4);
    const auto kernel = make_cpu_kernel(config_of(p, GetParam()));
    std::vector<std::byte> bytes(kernel->block_bytes(77), std::byte{0xFF});
    kernel->load_block(in.k.view(), in.v.view(), {}, bytes);
    ASSERT_EQ(bytes.size(), 2u * 3 * 80 * (6 + 16) * 2);
    const auto* bits = reinterpret_cast<const std::uint16_t*>(bytes.data());
    const auto element = [](const Tensor& t, index_t b, index_t row, index_t h, index_t c) {
      if (row >= t.shape[1] || c >= t.shape[3]) return std::uint16_t{0};
      return reinterpret_cast<const std::uint16_t*>(t.bytes.data())[t.index(b, row, h, c)];
    };
    for (index_t b = 0; b < 2; ++b)
      for (index_t h = 0; h < 3; ++h, bits += 80 * 22)
        for (index_t row = 0; row < 80; ++row) {
          for (index_t c = 0; c < 6; ++c)
            ASSERT_EQ(bits[row / 8 * 48 + c / 2 * 16 + row % 8 * 2 + c % 2], element(in.k, b, row, h, c))
                << "k " << row << ", " << c;
          const index_t first = row / 64 * 64, rows = first == 0 ? 64 : 16, j = row - first;
          for (index_t c = 0; c < 16; ++c)
            ASSERT_EQ(bits[80 * 6 + first * 16 + c / 8 * rows * 8 + j / 2 * 16 + c % 8 * 2 + j % 2],
                      element(in.v, b, row, h, c))
                << "v " << row << ", " << c;
        }
  }
}

TEST(Peaks, AreOfTheInstructionThatMultiplies) {
  for (const std::string& isa : cpu_isas()) {
    EXPECT_EQ(cpu_product(DType::f32, isa), "FMA");
    EXPECT_EQ(cpu_product(DType::f16, isa), "FMA");
    EXPECT_EQ(cpu_product(DType::bf16, isa) == "bf16 dot-product", isa == "AVX3_BF16") << isa;
    const double peak = measure_product_peak(DType::bf16, 1, isa, 0.02);
    EXPECT_GT(peak, 1e8) << isa;   // slower than any machine that runs this
    EXPECT_LT(peak, 2e12) << isa;  // 128 FLOP a cycle at 15 GHz
  }
  EXPECT_THROW(measure_product_peak(DType::bf16, 0), UsageError);
  EXPECT_THROW(cpu_product(DType::bf16, "none"), UsageError);
}

}  // namespace
}  // namespace ringattn::test
