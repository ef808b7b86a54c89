// The functions that are compiled once for each instruction set, one by one.
#include "kernels/cpu/target.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/convert.h"
#include "kernels/cpu/cpu.h"
#include "src/error.h"

namespace ringattn::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class EveryTarget : public testing::TestWithParam<const Target*> {
 protected:
  const Target& target() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryTarget, testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& i) { return std::string(i.param->name); });

// Case A11.
TEST_P(EveryTarget, KeepsNanAndInfinity) { EXPECT_STREQ(target().self_test(), nullptr); }

TEST_P(EveryTarget, WidensEveryElementExactly) {
  std::vector<std::uint16_t> bits(0x10000 + 5);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  std::vector<float> wide(bits.size());
  for (const DType dtype : {DType::bf16, DType::f16}) {
    target().widen(bits.data(), dtype, static_cast<index_t>(bits.size()), 1.0, wide.data());
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float truth = dtype == DType::bf16 ? f32_from_bf16(bits[i]) : f32_from_f16(bits[i]);
      if (std::isnan(truth)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(truth)) << i;
      }
    }
  }
}

TEST_P(EveryTarget, NarrowsLikeTheScalarConversion) {
  std::vector<float> x = {0.0f, -0.0f, kInf, -kInf, kNan, 65519.996f, 65520.0f, 0x1p-24f, 0x1p-25f, 3.4e38f};
  std::mt19937 generator(3);
  while (x.size() < 200'003) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(generator())));
    // Exponents of the binary16 range, which random bits seldom have.
    x.push_back(std::ldexp(1.0f + static_cast<float>(generator() % 8192) / 8192,
                           static_cast<int>(generator() % 48) - 30));
  }
  std::vector<std::uint16_t> narrow(x.size());
  for (const DType dtype : {DType::bf16, DType::f16}) {
    target().narrow(x.data(), dtype, static_cast<index_t>(x.size()), narrow.data());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(narrow[i], dtype == DType::bf16 ? bf16_from_f32(x[i]) : f16_from_f32(x[i])) << x[i];
  }
}

// Case A41.
TEST_P(EveryTarget, RotatesInterleavedAndHalfSplitPairs) {
  struct Expected {
    int position;
    bool interleaved;
    double x[4];
  };
  const Expected cases[] = {
      {1, true, {-1.142639663748, 1.922075596544, 2.959850667913, 4.029799501669}},
      {1, false, {-1.984110648556, 1.959900667497, 2.462377902412, 4.019799668335}},
      {3, true, {-1.272232512720, -1.838864985141, 2.878668100437, 4.088186635603}},
      {3, false, {-1.413352520780, 1.879118066688, -2.828857481741, 4.058191135401}},
  };
  for (const Expected& c : cases) {
    float row[6] = {1, 2, 3, 4, 5, 6}, cos[2], sin[2];
    for (int p = 0; p < 2; ++p) {
      const double angle = c.position * std::pow(10000.0, -2.0 * p / 4);
      cos[p] = static_cast<float>(std::cos(angle));
      sin[p] = static_cast<float>(std::sin(angle));
    }
    target().rotate(row, cos, sin, 4, c.interleaved);
    for (int e = 0; e < 4; ++e) EXPECT_NEAR(row[e], c.x[e], 5e-7) << c.position << " " << c.interleaved;
    EXPECT_EQ(row[4], 5.0f);  // past dim: unchanged
    EXPECT_EQ(row[5], 6.0f);
  }
}

TEST_P(EveryTarget, ScalesByFactorsThatFp32CannotHold) {
  const float x[3] = {1e30f, -2e30f, 0.0f};
  float y[3];
  target().widen(x, DType::f32, 3, 0x1p-200, y);
  EXPECT_FLOAT_EQ(y[0], static_cast<float>(1e30 * 0x1p-200));
  EXPECT_FLOAT_EQ(y[1], static_cast<float>(-2e30 * 0x1p-200));
  EXPECT_EQ(y[2], 0.0f);
  target().widen(x, DType::f32, 3, -0.25, y);
  EXPECT_EQ(y[0], -0.25f * x[0]);
}

TEST_P(EveryTarget, DividesWithOneRounding) {
  constexpr index_t n = 61, stride = 80;
  std::mt19937 generator(3);
  std::uniform_real_distribution<float> exponent(-40, 40);
  std::vector<float> columns(n * kGroup), divisors(8);
  alignas(64) static float rows[8 * stride];
  for (int round = 0; round < 50; ++round) {
    for (float& x : columns) x = std::exp2(exponent(generator)) * (generator() % 2 ? 1.0f : -1.0f);
    for (float& x : divisors) x = std::exp2(exponent(generator));
    columns[0] = kInf, columns[1] = kNan, columns[2] = 0.0f, columns[3] = -kInf;
    if (round % 5 == 0) divisors[4] = kInf, divisors[5] = kNan, divisors[6] = 1.0f;
    std::ranges::fill(rows, kNan);
    float* const at = rows + (round % 4 == 3 ? 1 : 0);  // not aligned: cannot be streamed
    target().quotients_to_rows(columns.data(), kGroup, n, divisors.data(), at, stride, round % 2 == 1);
    target().flush_stream();
    for (index_t c = 0; c < n; ++c) {
      for (index_t r = 0; r < 8; ++r) {
        const float x = columns[static_cast<std::size_t>(c * kGroup + r)];
        const float want = x / divisors[static_cast<std::size_t>(r)];
        const float got = at[r * stride + c];
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << x << " / " << divisors[static_cast<std::size_t>(r)] << " = " << want << ", got " << got;
      }
    }
  }
}

TEST_P(EveryTarget, CopiesRowsToPanelsAndFillsUpTheLast) {
  constexpr index_t stride = 129;
  alignas(64) static float panels[13 * 8 * 12];
  std::vector<float> rows(8 * stride);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  for (const index_t n : {1, 7, 8, 13, 64, 100}) {
    for (const index_t panel : {8 * 11, 8 * 12}) {
      for (const bool stream : {false, true}) {
        std::ranges::fill(panels, kNan);
        target().rows_to_panels(rows.data(), stride, n, panels, panel, stream);
        target().flush_stream();
        for (index_t c = 0; c < (n + 7) / 8 * 8; ++c)
          for (index_t r = 0; r < 8; ++r)
            ASSERT_EQ(panels[c / 8 * panel + 8 * r + c % 8],
                      c < n ? rows[static_cast<std::size_t>(r * stride + c)] : 0.0f);
        ASSERT_TRUE(std::isnan(panels[64]));  // the panel's rows are further apart than they are many
      }
    }
  }
}

TEST_P(EveryTarget, TransposesRowsToAPanel) {
  alignas(64) static float panel[8 * 104];
  std::vector<float> rows(8 * kStageStride);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
  for (const index_t n : {1, 7, 8, 9, 64, 101}) {
    for (const bool stream : {false, true}) {
      for (float* to : {panel, panel + 8}) {  // the second is half a line further on
        std::ranges::fill(panel, kNan);
        target().rows_to_panel(rows.data(), kStageStride, n, to, stream);
        target().flush_stream();
        for (index_t c = 0; c < n; ++c)
          for (index_t r = 0; r < 8; ++r)
            ASSERT_EQ(to[8 * c + r], rows[static_cast<std::size_t>(r * kStageStride + c)]);
        ASSERT_TRUE(std::isnan(to[8 * n]));
      }
    }
  }
}

TEST_P(EveryTarget, TransposesThereAndBack) {
  for (const index_t n : {1, 7, 8, 9, 64, 101, 512}) {
    std::vector<float> rows(8 * kStageStride), columns(512 * 48, kNan), back(8 * kStageStride, kNan);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    for (const index_t stride : {8, 48}) {
      target().rows_to_columns(rows.data(), kStageStride, 1.0f, n, columns.data(), stride);
      for (index_t c = 0; c < n; ++c)
        for (index_t r = 0; r < 8; ++r)
          ASSERT_EQ(columns[static_cast<std::size_t>(c * stride + r)],
                    rows[static_cast<std::size_t>(r * kStageStride + c)]);
      target().columns_to_rows(columns.data(), stride, n, back.data(), kStageStride);
      for (index_t r = 0; r < 8; ++r)
        ASSERT_EQ(
            std::memcmp(&back[static_cast<std::size_t>(r * kStageStride)],
                        &rows[static_cast<std::size_t>(r * kStageStride)], static_cast<std::size_t>(n) * 4),
            0);
    }
  }
}

TEST_P(EveryTarget, FindsOneNonFiniteElement) {
  std::vector<float> x(131, 3e38f);
  EXPECT_TRUE(target().all_finite(x.data(), 131));
  for (const float bad : {kNan, kInf, -kInf})
    for (std::size_t at = 0; at < x.size(); ++at) {
      x[at] = bad;
      ASSERT_FALSE(target().all_finite(x.data(), 131)) << at;
      ASSERT_TRUE(target().all_finite(x.data(), static_cast<index_t>(at)));
      x[at] = 1;
    }
}

TEST(Targets, AreListedBestFirstAndFoundByName) {
  const std::vector<std::string> isas = cpu_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_STREQ(target_named("auto").name, isas.front().c_str());
  for (const std::string& isa : isas) EXPECT_EQ(target_named(isa).name, isa);
  try {
    target_named("AVX9");
    FAIL() << "AVX9 was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("AVX9"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(isas.back()), std::string::npos) << error.what();
  }
}

TEST(Targets, FmaPeakIsPlausible) {
  for (const std::string& isa : cpu_isas()) {
    const double peak = measure_fma_peak(1, isa, 0.02);
    EXPECT_GT(peak, 1e6) << isa;   // less than the slowest set gets under a sanitizer on a busy machine
    EXPECT_LT(peak, 1e12) << isa;  // 64 FLOP a cycle at 15 GHz
  }
  EXPECT_THROW(measure_fma_peak(0), UsageError);
  EXPECT_THROW(measure_fma_peak(1, "none"), UsageError);
}

// 100 MB/s is slower than any machine that runs this; 10 TB/s more than a vector a cycle on two cores.
TEST(Targets, ReadBandwidthIsPlausible) {
  for (const int threads : {1, 3}) {
    const double rate = measure_read_bandwidth(threads, (std::size_t{8} << 20) + 12, 0.01);
    EXPECT_GT(rate, 1e8) << threads;
    EXPECT_LT(rate, 1e13) << threads;
  }
  EXPECT_GT(measure_read_bandwidth(2, 128, 0), 0);
  EXPECT_THROW(measure_read_bandwidth(0, 4096, 0.01), UsageError);
  try {
    measure_read_bandwidth(2, 127, 0.01);
    FAIL() << "a share of less than 64 bytes was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("bytes: 127"), std::string::npos) << error.what();
  }
}

// A load that is left out would make the bandwidth too good.
TEST_P(EveryTarget, ReadsEveryWord) {
  for (const index_t n : {0, 1, 7, 127, 128, 129, 300}) {
    std::vector<std::uint32_t> x(static_cast<std::size_t>(n), 0);
    ASSERT_EQ(target().read_all(x.data(), n), 0U);
    for (std::uint32_t& word : x) {
      word = 0x00800000;
      ASSERT_EQ(target().read_all(x.data(), n), 0x00800000U);
      word = 0;
    }
  }
}

}  // namespace
}  // namespace ringattn::cpu
