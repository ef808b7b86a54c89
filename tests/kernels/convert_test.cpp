#include "kernels/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace ringattn {
namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Case A6, test 2.
TEST(Convert, Bf16RoundsToNearestEven) {
  EXPECT_EQ(f32_from_bf16(bf16_from_f32(0.2691408770292272f)), 0.26953125f);
  EXPECT_EQ(bf16_from_f32(from_bits(0x3F808000)), 0x3F80);
  EXPECT_EQ(bf16_from_f32(from_bits(0x3F818000)), 0x3F82);
  EXPECT_EQ(bf16_from_f32(from_bits(0x7F7FFFFF)), 0x7F80);
  EXPECT_EQ(bf16_from_f32(-0.0f), 0x8000);
  for (const std::uint32_t nan : {0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0x7FC00000u})
    EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f32(from_bits(nan))))) << std::hex << nan;
}

TEST(Convert, EveryBf16ComesBack) {
  for (std::uint32_t x = 0; x < 0x10000; ++x) {
    const float f = f32_from_bf16(static_cast<std::uint16_t>(x));
    if (std::isnan(f)) continue;
    ASSERT_EQ(bf16_from_f32(f), x);
  }
}

// The value of a binary16 by its definition.
double half_value(std::uint32_t x) {
  const int exponent = static_cast<int>(x >> 10 & 31), mantissa = static_cast<int>(x & 1023);
  const double sign = x & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Convert, EveryF16IsExactAndComesBack) {
  for (std::uint32_t x = 0; x < 0x10000; ++x) {
    const float f = f32_from_f16(static_cast<std::uint16_t>(x));
    if (std::isnan(half_value(x))) {
      ASSERT_TRUE(std::isnan(f)) << x;
      ASSERT_TRUE(std::isnan(f32_from_f16(f16_from_f32(f)))) << x;
    } else {
      ASSERT_EQ(f, half_value(x)) << x;
      ASSERT_EQ(f16_from_f32(f), x);
    }
  }
}

// Between two neighbours the nearer one; in the middle the even one.
TEST(Convert, F16RoundsToNearestEven) {
  for (std::uint32_t x = 0; x < 0x7BFF; ++x) {
    const double low = half_value(x), high = half_value(x + 1), middle = (low + high) / 2;
    const auto mid = static_cast<float>(middle);  // 12 bits of mantissa: exact
    const std::uint32_t even = x % 2 == 0 ? x : x + 1;
    ASSERT_EQ(f16_from_f32(mid), even) << x;
    ASSERT_EQ(f16_from_f32(std::nextafter(mid, 0.0f)), x);
    ASSERT_EQ(f16_from_f32(std::nextafter(mid, 1e9f)), x + 1);
    ASSERT_EQ(f16_from_f32(-mid), even | 0x8000);
  }
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_f32(1e30f), 0x7C00);
  EXPECT_EQ(f16_from_f32(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(f16_from_f32(1e-30f), 0);
  EXPECT_EQ(f16_from_f32(-0.0f), 0x8000);
  EXPECT_TRUE(std::isnan(f32_from_f16(f16_from_f32(from_bits(0x7F800001)))));
}

TEST(Convert, Bf16IsTheNearestOfRandomBits) {
  std::mt19937 generator(1);
  for (int n = 0; n < 1'000'000; ++n) {
    const float x = from_bits(static_cast<std::uint32_t>(generator()));
    if (!std::isfinite(x) || std::fabs(x) > 3e38f) continue;
    const std::uint16_t y = bf16_from_f32(x);
    const double error = std::fabs(double{x} - double{f32_from_bf16(y)});
    ASSERT_LE(error, std::fabs(double{x} - double{f32_from_bf16(static_cast<std::uint16_t>(y + 1))}));
    if ((y & 0x7FFF) == 0) continue;
    ASSERT_LE(error, std::fabs(double{x} - double{f32_from_bf16(static_cast<std::uint16_t>(y - 1))}));
  }
}

}  // namespace
}  // namespace ringattn
