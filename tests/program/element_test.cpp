#include "launch/element.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/narrow.h"

namespace ringattn::launch {
namespace {

std::uint16_t bits_of(DType type, float value) {
  std::byte bytes[2];
  store_element(type, value, bytes);
  std::uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return bits;
}

class SixteenBits : public testing::TestWithParam<DType> {
 protected:
  test::Format format() const { return GetParam() == DType::bf16 ? test::kBf16 : test::kF16; }
};

TEST_P(SixteenBits, EveryNumberIsReadAndWrittenExactly) {
  for (int b = 0; b < 65536; ++b) {
    const auto bits = static_cast<std::uint16_t>(b);
    const double want = test::decode(bits, format());
    std::byte bytes[2];
    std::memcpy(bytes, &bits, 2);
    const float got = load_element(GetParam(), bytes);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << b;
      EXPECT_TRUE(std::isnan(rounded(GetParam(), got))) << b;
      continue;
    }
    ASSERT_EQ(got, want) << b;
    ASSERT_EQ(bits_of(GetParam(), got), bits) << b;
  }
}

// Case A6: to nearest, ties to even, at and beside every tie, in all binades, subnormal and overflowing ones
// too.
TEST_P(SixteenBits, RoundsToNearestEven) {
  for (int b = 0; b < 0x7FFF; ++b) {
    const double low = test::decode(static_cast<std::uint16_t>(b), format());
    const double high = test::decode(static_cast<std::uint16_t>(b + 1), format());
    if (!std::isfinite(low) || !std::isfinite(high)) continue;
    const auto tie = static_cast<float>((low + high) / 2);
    for (const float value : {tie, std::nextafter(tie, 0.0f), std::nextafter(tie, 1e38f)}) {
      ASSERT_EQ(bits_of(GetParam(), value), test::encode(value, format())) << value;
      ASSERT_EQ(bits_of(GetParam(), -value), test::encode(-value, format())) << -value;
    }
  }
  for (const float value : {65519.9f, 65520.0f, 3.4e38f, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::denorm_min(), 0x1p-25f, 0x1.000002p-25f}) {
    EXPECT_EQ(bits_of(GetParam(), value), test::encode(value, format())) << value;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, SixteenBits, testing::Values(DType::bf16, DType::f16));

TEST(Element, AFloatIsKeptBitForBit) {
  for (const float value : {0.0f, -0.0f, 1.5f, 1e-45f, -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded(DType::f32, value)), std::bit_cast<std::uint32_t>(value));
  }
}

}  // namespace
}  // namespace ringattn::launch
