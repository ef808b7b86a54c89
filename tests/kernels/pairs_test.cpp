// The functions of each instruction set that move 16-bit elements in pairs, one by one.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/convert.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class PairsOfEveryTarget : public testing::TestWithParam<const Target*> {
 protected:
  const Target& target() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cpu, PairsOfEveryTarget, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& i) { return std::string(i.param->name); });

// An odd number of rows ends in the middle of a cell.
TEST_P(PairsOfEveryTarget, WidenExactly) {
  for (const index_t n : {1, 2, 7, 64, 65, 129}) {
    std::vector<std::uint16_t> pairs(static_cast<std::size_t>((n + 1) / 2 * 16));
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = static_cast<std::uint16_t>(i * 641 % 0x7C00);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      std::vector<float> rows(static_cast<std::size_t>(n * 8 + 1), kNan);
      target().widen_pairs(pairs.data(), dtype, n, rows.data());
      for (index_t i = 0; i < n; ++i)
        for (index_t r = 0; r < 8; ++r) {
          const std::uint16_t bits = pairs[static_cast<std::size_t>(i / 2 * 16 + r * 2 + i % 2)];
          ASSERT_EQ(rows[static_cast<std::size_t>(i * 8 + r)],
                    dtype == DType::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits))
              << n << ": " << i << ", " << r;
        }
      ASSERT_TRUE(std::isnan(rows.back())) << n;  // nothing past the end
    }
  }
}

TEST_P(PairsOfEveryTarget, InterleaveRowsAndFillUpTheLastColumns) {
  for (const index_t n : {1, 7, 8, 13, 128}) {
    std::vector<std::uint16_t> even, odd;
    for (index_t c = 0; c < n; ++c) {
      even.push_back(static_cast<std::uint16_t>(2 * c + 1));
      odd.push_back(static_cast<std::uint16_t>(1000 + c));
    }
    const index_t blocks = (n + 7) / 8, step = 48;
    std::vector<std::uint16_t> to(static_cast<std::size_t>(blocks * step), 0xFFFF);
    target().interleave_rows(even.data(), odd.data(), n, to.data(), step);
    for (index_t c = 0; c < blocks * 8; ++c) {
      const auto at = static_cast<std::size_t>(c / 8 * step + c % 8 * 2),
                 column = static_cast<std::size_t>(c);
      ASSERT_EQ(to[at], c < n ? even[column] : 0) << n << ", " << c;
      ASSERT_EQ(to[at + 1], c < n ? odd[column] : 0) << n << ", " << c;
    }
    ASSERT_EQ(to[16], 0xFFFF);  // between blocks
  }
}

TEST_P(PairsOfEveryTarget, MagnitudesLeaveOutWhatIsNotFinite) {
  std::vector<std::uint16_t> x(131, bf16_from_f32(0x1p-130f));
  x[77] = bf16_from_f32(-3.0f);
  Magnitude found = target().magnitude_bf16(x.data(), 131);
  EXPECT_TRUE(found.finite);
  EXPECT_EQ(found.largest, 3.0f);
  for (const float bad : {kNan, kInf, -kInf})
    for (const std::size_t at : {std::size_t{0}, std::size_t{63}, std::size_t{130}}) {
      std::vector<std::uint16_t> y = x;
      y[at] = bf16_from_f32(bad);
      found = target().magnitude_bf16(y.data(), 131);
      EXPECT_FALSE(found.finite) << at;
      EXPECT_EQ(found.largest, 3.0f) << at;
    }
  alignas(64) float wide[48] = {};
  wide[17] = -5.0f, wide[30] = kNan, wide[47] = kInf;
  EXPECT_EQ(target().largest_finite(wide, 48), 5.0f);
}

TEST_P(PairsOfEveryTarget, FindOneNumberOutsideARange) {
  for (const index_t n : {1, 16, 29}) {
    std::vector<float> x(static_cast<std::size_t>(n), 1.0f);
    for (std::size_t at = 0; at < x.size(); ++at) {
      for (const float fine : {0.0f, -0.0f, kNan, kInf, -kInf, -0x1p-126f, 0x1p90f}) {
        x[at] = fine;
        EXPECT_TRUE(target().within_magnitudes(x.data(), n, 0x1p-126f, 0x1p90f)) << at << ": " << fine;
      }
      for (const float outside : {0x1p-127f, -0x1p-149f, 0x1p91f, -3e38f}) {
        x[at] = outside;
        EXPECT_FALSE(target().within_magnitudes(x.data(), n, 0x1p-126f, 0x1p90f)) << at << ": " << outside;
      }
      x[at] = 1.0f;
    }
  }
}

// To nearest even, an odd number of rows ended by zeros; and back without further loss.
TEST_P(PairsOfEveryTarget, QueriesBecomePairsInPlaceAndRowsAgain) {
  if (!target().pairs) GTEST_SKIP() << "widens";
  for (const index_t n : {1, 2, 7, 20}) {
    alignas(64) float x[20 * kGroup], back[20 * kGroup];
    std::vector<float> before;
    for (index_t i = 0; i < n * kGroup; ++i) {
      x[i] = std::ldexp(1.0f + static_cast<float>(i * 2654435761 % 65536) / 65536,
                        static_cast<int>(i % 40) - 20);
      before.push_back(x[i]);
    }
    target().pairs->pair_rows(x, n, x);
    target().pairs->split_rows(x, n, back);
    for (std::size_t i = 0; i < before.size(); ++i)
      ASSERT_EQ(back[i], f32_from_bf16(bf16_from_f32(before[i]))) << n << ": " << i;
    const auto* cells = reinterpret_cast<const std::uint16_t*>(x);
    if (n % 2 == 1) {
      for (index_t lane = 0; lane < kGroup; ++lane) ASSERT_EQ(cells[n / 2 * 2 * kGroup + 2 * lane + 1], 0);
    }
  }
}

// Element (a, b) of a block is half a % 2 of cell [a / 2][b], and becomes half b % 2 of cell [b / 2][a].
TEST_P(PairsOfEveryTarget, RegroupingChangesTheDimensionOfPairs) {
  if (!target().pairs) GTEST_SKIP() << "widens";
  for (const index_t n : {1, 7, 8, 16, 21}) {
    const index_t from_stride = 11, from_step = 4 * from_stride, to_stride = 9, to_step = 4 * to_stride;
    const index_t blocks = (n + 7) / 8;
    std::vector<float> from(static_cast<std::size_t>(blocks * from_step)),
        to(static_cast<std::size_t>(blocks * to_step), kNan);
    auto* in = reinterpret_cast<std::uint16_t*>(from.data());
    for (std::size_t i = 0; i < 2 * from.size(); ++i) in[i] = static_cast<std::uint16_t>(i + 1);
    for (index_t b = 0; n % 2 == 1 && b < 8; ++b) in[2 * (n / 2 * from_stride + b) + 1] = 0;
    target().pairs->regroup({.from = from.data(),
                             .from_stride = from_stride,
                             .from_step = from_step,
                             .to = to.data(),
                             .to_stride = to_stride,
                             .to_step = to_step},
                            n);
    const auto* out = reinterpret_cast<const std::uint16_t*>(to.data());
    for (index_t a = 0; a < blocks * 8; ++a)
      for (index_t b = 0; b < 8; ++b)
        ASSERT_EQ(out[2 * (a / 8 * to_step + b / 2 * to_stride + a % 8) + b % 2],
                  a < n ? in[2 * (a / 2 * from_stride + b) + a % 2] : 0)
            << n << ": " << a << ", " << b;
  }
}

}  // namespace
}  // namespace ringattn::cpu
