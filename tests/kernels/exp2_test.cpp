// exp2 of every instruction set over its range (case kind F2). exp2_all sweeps every float.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/kernels/exp2_sweep.h"
#include "tests/support/sanitized.h"

namespace ringattn::test {
namespace {

using cpu::Target;

constexpr float kInf = std::numeric_limits<float>::infinity();

// A prime, so that the inputs have every low bit: 53 million floats from all exponents.
constexpr std::uint32_t kStep = kSanitized ? 9973 : 61;

class Exp2OfSlope : public testing::TestWithParam<float> {};

// The slopes of the largest part of the range that occur: [1, 2).
INSTANTIATE_TEST_SUITE_P(Cpu, Exp2OfSlope, testing::Values(1.0f, 1.4426951f, 1.999f));

TEST_P(Exp2OfSlope, IsAccurateOverItsRangeAndNeverJunkBelowIt) {
  for (const Exp2Sweep& s : sweep_exp2(GetParam(), kStep)) {
    EXPECT_GT(s.inputs, 2'100'000'000U / kStep * 3 / 2) << s.target->name;
    EXPECT_GT(s.worst_relative, 0x1p-25) << s.target->name << ": nothing can be as exact as that";
    EXPECT_LE(s.worst_relative, kExp2Error) << s.target->name << " at " << s.worst_at;
    EXPECT_LE(s.worst_denormal, 0.5) << s.target->name << " at " << s.worst_denormal_at;
    EXPECT_EQ(s.junk, 0U) << s.target->name << " at " << s.junk_at;
  }
}

class Exp2 : public testing::TestWithParam<const Target*> {
 protected:
  float of(float x, float slope = 1) const {
    float y = 7;
    GetParam()->exp2(&x, 1, slope, &y);
    return y;
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, Exp2, testing::ValuesIn(cpu::targets().begin(), cpu::targets().end()),
                         [](const auto& i) { return std::string(i.param->name); });

// Equal scores have equal weights, and a row's largest one has weight 1.
TEST_P(Exp2, OfZeroIsExactlyOne) {
  for (const float slope : {1.0f, 1.4426951f, 1.999f}) {
    for (const float zero : {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-39f, -1e-39f, 1e-20f, -1e-20f})
      EXPECT_EQ(of(zero, slope), 1.0f) << zero;
  }
}

TEST_P(Exp2, OfWholeNumbersIsExact) {
  for (int n = -126; n <= 127; ++n) EXPECT_EQ(of(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
}

TEST_P(Exp2, OfMinusInfinityIsZeroAndSoIsWhatIsFarBelow) {
  for (const float slope : {1.0f, 1.4426951f, 1.999f}) {
    for (const float x : {-kInf, std::numeric_limits<float>::lowest(), -1e30f, -1e9f, -65536.0f, -151.0f}) {
      const float y = of(x, slope);
      EXPECT_EQ(y, 0.0f) << x;
      EXPECT_FALSE(std::signbit(y)) << x;
    }
  }
}

// Quiet and signalling, of either sign, with the lowest and the highest payloads.
TEST_P(Exp2, KeepsEveryKindOfNan) {
  for (const std::uint32_t sign : {0U, 0x80000000U}) {
    for (const std::uint32_t payload :
         {0x400000U, 0x400001U, 0x7FFFFFU, 0x000001U, 0x3FFFFFU, 0x200000U, 0x555555U}) {
      const float nan = std::bit_cast<float>(sign | 0x7F800000U | payload);
      for (const float slope : {1.0f, 1.999f})
        EXPECT_TRUE(std::isnan(of(nan, slope))) << std::hex << (sign | payload);
    }
  }
}

// A lane must not see its neighbours, nor an array's rest what lies behind it.
TEST_P(Exp2, DoesEveryElementAlone) {
  std::mt19937 generator(5);
  std::uniform_real_distribution<float> among(-130, 5);
  std::vector<float> x(67);
  for (float& value : x) value = among(generator);
  x[3] = std::nanf(""), x[20] = -kInf, x[66] = std::nanf("");
  for (std::size_t n = 0; n <= x.size(); ++n) {
    std::vector<float> y(x.size() + 1, 7.0f);
    GetParam()->exp2(x.data(), static_cast<index_t>(n), 1.4426951f, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const float expected = i < n ? of(x[i], 1.4426951f) : 7.0f;
      ASSERT_TRUE(y[i] == expected || (std::isnan(y[i]) && std::isnan(expected))) << n << " " << i;
    }
  }
}

// AVX-512 has a form of its own (scaling by an instruction); the others share one. For slope 1 all round the
// same argument and evaluate the same polynomial, so what is normal agrees to the bit where both use fused
// multiply-adds, and to a unit of the last place everywhere.
TEST(Exp2Forms, AgreeWithTheBestInstructionSet) {
  std::vector<float> x, best, other;
  for (std::uint64_t bits = std::bit_cast<std::uint32_t>(-126.0f); bits > 0x80000000U; bits -= kStep)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  for (std::uint64_t bits = 0; bits <= std::bit_cast<std::uint32_t>(127.0f); bits += kStep)
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  best.resize(x.size()), other.resize(x.size());
  cpu::targets().front()->exp2(x.data(), static_cast<index_t>(x.size()), 1, best.data());
  for (const Target* target : cpu::targets()) {
    target->exp2(x.data(), static_cast<index_t>(x.size()), 1, other.data());
    std::int32_t apart = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::int32_t bits =
          std::abs(std::bit_cast<std::int32_t>(best[i]) - std::bit_cast<std::int32_t>(other[i]));
      if (bits > apart) apart = bits, at = x[i];
    }
    EXPECT_LE(apart, 1) << target->name << " at " << at;
  }
}

}  // namespace
}  // namespace ringattn::test
