#include "src/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/error.h"

namespace ringattn {
namespace {

struct Angles {
  std::vector<float> cos, sin;
};

Angles angles_at(const Rope& rope, index_t head_dim, index_t position) {
  const auto pairs = static_cast<std::size_t>(rotary_dim(rope, head_dim) / 2);
  Angles a{std::vector<float>(pairs, NAN), std::vector<float>(pairs, NAN)};
  RotaryAngles(rope, head_dim).at(position, a.cos, a.sin);
  return a;
}

// Turns x in double by the angles under test.
std::vector<double> turned(std::vector<double> x, const Rope& rope, index_t position) {
  const auto dim = static_cast<std::size_t>(rotary_dim(rope, static_cast<index_t>(x.size())));
  const Angles a = angles_at(rope, static_cast<index_t>(x.size()), position);
  std::vector<double> y = x;
  for (std::size_t p = 0; p < dim / 2; ++p) {
    const bool half = rope.pairing == Rope::Pairing::half;
    const std::size_t first = half ? p : 2 * p, second = half ? p + dim / 2 : 2 * p + 1;
    y[first] = x[first] * a.cos[p] - x[second] * a.sin[p];
    y[second] = x[first] * a.sin[p] + x[second] * a.cos[p];
  }
  return y;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t e = 0; e < got.size(); ++e) EXPECT_NEAR(got[e], want[e], 1e-6) << "element " << e;
}

// Values of case A41: x = (1, 2, 3, 4), base 10000.
TEST(Rope, TurnsInterleavedAndHalfSplitPairs) {
  const Rope interleaved{.pairing = Rope::Pairing::interleaved}, half{.pairing = Rope::Pairing::half};
  const std::vector<double> x{1, 2, 3, 4};
  expect_near(turned(x, interleaved, 1), {-1.142639663748, 1.922075596544, 2.959850667913, 4.029799501669});
  expect_near(turned(x, half, 1), {-1.984110648556, 1.959900667497, 2.462377902412, 4.019799668335});
  expect_near(turned(x, interleaved, 3), {-1.272232512720, -1.838864985141, 2.878668100437, 4.088186635603});
  expect_near(turned(x, half, 3), {-1.413352520780, 1.879118066688, -2.828857481741, 4.058191135401});
}

// Values of case A7. An fp32 product of position and frequency gives -0.977713 for pair 1.
TEST(Rope, KeepsItsPrecisionAtLargePositions) {
  const Angles a = angles_at({.pairing = Rope::Pairing::half}, 128, 131071);
  EXPECT_NEAR(a.cos[0], -0.8179834993879, 1e-6);
  EXPECT_NEAR(a.sin[0], -0.5752416837548, 1e-6);
  EXPECT_NEAR(a.cos[1], -0.978270912936, 1e-6);
  // The second digits of case A7: an implementation with bf16 positions would give the cosine of 15936.
  EXPECT_NEAR(angles_at({.pairing = Rope::Pairing::half}, 2, 15962).cos[0], -0.908015901251, 1e-6);
}

// The same angles formed in long double; what remains is the rounding to fp32 (at most 2^-25 below 1) and, at
// 2^40, the 1e-15 relative error of the angle that src/rope.h states.
TEST(Rope, ErrsByTheRoundingToFloatAlone) {
  struct At {
    index_t position;
    double bound;
  };
  for (const index_t dim : {2, 20, 64, 80, 128, 512}) {
    for (const double base : {10000.0, 100000.0, 500000.0, 1e6}) {
      const Rope rope{.pairing = Rope::Pairing::interleaved, .base = base};
      for (const At at : {At{1, 3.0e-8}, At{4095, 3.0e-8}, At{131071, 3.1e-8}, At{-131071, 3.1e-8},
                          At{104857601, 3.0e-7}, At{index_t{1} << 40, 3e-3}}) {
        const Angles a = angles_at(rope, dim, at.position);
        for (index_t p = 0; p < dim / 2; ++p) {
          const long double frequency =
              std::pow(static_cast<long double>(base),
                       -2.0L * static_cast<long double>(p) / static_cast<long double>(dim));
          const long double angle = static_cast<long double>(at.position) * frequency;
          const auto pair = static_cast<std::size_t>(p);
          const double bound = p == 0 ? 3.0e-8 : at.bound;  // frequency 1: exact at any position
          ASSERT_NEAR(a.cos[pair], static_cast<double>(std::cos(angle)), bound)
              << "dim " << dim << ", pair " << p << ", position " << at.position;
          ASSERT_NEAR(a.sin[pair], static_cast<double>(std::sin(angle)), bound);
        }
      }
    }
  }
}

TEST(Rope, OffsetIsAddedToThePosition) {
  Rope rope{.pairing = Rope::Pairing::half};
  const Angles want = angles_at(rope, 8, 131071);
  rope.position_offset = 131064;  // case A7: the last of 8 positions
  const Angles got = angles_at(rope, 8, 7);
  EXPECT_EQ(got.cos, want.cos);
  EXPECT_EQ(got.sin, want.sin);
}

TEST(Rope, TurnsOnlyTheRotaryDimensions) {
  const Rope rope{.pairing = Rope::Pairing::half, .dim = 4};
  EXPECT_EQ(rotary_dim(rope, 7), 4);
  EXPECT_EQ(rotary_dim({.pairing = Rope::Pairing::half}, 8), 8);
  EXPECT_EQ(rotary_dim({}, 8), 0);
  const std::vector<double> y = turned({1, 2, 3, 4, 5, 6, 7}, rope, 1);
  expect_near(y, {-1.984110648556, 1.959900667497, 2.462377902412, 4.019799668335, 5, 6, 7});
}

std::string refusal(const Rope& rope, index_t head_dim) {
  try {
    validate(rope, head_dim);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Rope, RefusesWhatCannotBeApplied) {
  using enum Rope::Pairing;
  EXPECT_EQ(refusal({.pairing = half}, 64), "accepted");
  EXPECT_EQ(refusal({.pairing = half, .dim = 62}, 63), "accepted");
  EXPECT_EQ(refusal({}, 63), "accepted");
  EXPECT_EQ(refusal({.pairing = half}, 63),
            "head_dim is 63; rope over the whole head needs an even one (or an even rope dim below it)");
  EXPECT_EQ(refusal({.pairing = half, .dim = 5}, 64), "rope dim is 5; allowed are even numbers");
  EXPECT_EQ(refusal({.pairing = half, .dim = 66}, 64), "rope dim is 66; allowed are 0 to 64");
  EXPECT_EQ(refusal({.pairing = half, .dim = -2}, 64), "rope dim is -2; allowed are 0 to 64");
  for (const double base : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_NE(refusal({.pairing = half, .base = base}, 64).find("rope base is "), std::string::npos);
  }
  EXPECT_NE(refusal({.pairing = half, .position_offset = index_t{1} << 53}, 64).find("position_offset"),
            std::string::npos);
  EXPECT_EQ(refusal({.base = 5e5}, 64),
            "rope base is 500000; rope pairing is none, so it must be left at 10000");
  EXPECT_EQ(refusal({.dim = 4}, 64), "rope dim is 4; rope pairing is none, so it must be left at 0");
  EXPECT_NE(refusal({.position_offset = 1}, 64), "accepted");
}

TEST(Rope, PairingNamesGoBothWays) {
  using enum Rope::Pairing;
  for (const auto p : {none, half, interleaved}) EXPECT_EQ(pairing_from_name(name_of(p)), p);
  EXPECT_THROW(pairing_from_name("neox"), UsageError);
}

}  // namespace
}  // namespace ringattn
