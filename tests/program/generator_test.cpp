#include "launch/generator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "launch/element.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

float element(std::uint64_t seed, TensorId tensor, index_t batch, index_t position, index_t head,
              std::size_t e) {
  std::vector<float> row(e + 1);
  generate_row(seed, tensor, batch, position, head, DType::f32, row);
  return row[e];
}

// Values of the formula in generator.h, worked out in Python's integers.
TEST(Generator, MakesTheNumbersOfItsFormula) {
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  EXPECT_EQ(bits(element(0, TensorId::q, 0, 0, 0, 0)), 0x3F7E45EFu);
  EXPECT_EQ(bits(element(0, TensorId::k, 0, 0, 0, 0)), 0x3F856F82u);
  EXPECT_EQ(bits(element(7, TensorId::v, 1, 1'000'000'007, 3, 127)), 0xBEE9BEE4u);
  EXPECT_EQ(bits(element(~std::uint64_t{0}, TensorId::q, 0, 0, 0, 1)), 0xBF14F4D5u);
}

// 3 heads of 5 elements over 13 positions in 2 batches: no two extents equal (case A36).
TEST(Generator, ARowDoesNotDependOnRanksOrLayout) {
  constexpr index_t kBatch = 2, kLength = 13, kHeads = 3, kDim = 5;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
      for (const int ranks : {1, 2, 5, 17}) {
        const Layout layout = Layout::make(kind, kLength, ranks);
        for (int r = 0; r < ranks; ++r) {
          const index_t rows = layout.rows(r);
          std::vector<std::byte> shard(static_cast<std::size_t>(kBatch * rows * kHeads * kDim) *
                                       size_of(dtype));
          generate_shard(3, TensorId::v, layout.segments(r), kBatch, kHeads, kDim, dtype, shard);
          for (index_t b = 0; b < kBatch; ++b) {
            for (index_t t = 0; t < rows; ++t) {
              for (index_t h = 0; h < kHeads; ++h) {
                std::vector<float> row(kDim);
                generate_row(3, TensorId::v, b, layout.position(r, t), h, dtype, row);
                for (index_t e = 0; e < kDim; ++e) {
                  const auto at = static_cast<std::size_t>(((b * rows + t) * kHeads + h) * kDim + e);
                  ASSERT_EQ(load_element(dtype, shard.data() + at * size_of(dtype)),
                            row[static_cast<std::size_t>(e)]);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(Generator, NarrowTypesHoldTheRoundedFloat) {
  std::vector<float> wide(97), narrow(97);
  generate_row(5, TensorId::k, 0, 11, 2, DType::f32, wide);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    generate_row(5, TensorId::k, 0, 11, 2, dtype, narrow);
    for (std::size_t e = 0; e < wide.size(); ++e) EXPECT_EQ(narrow[e], rounded(dtype, wide[e]));
  }
}

// 10^6 values: the mean is within 5 of its standard deviations (5/1000), the variance within 5 of its own
// (the fourth moment of four uniform numbers is 2.7, so sqrt(1.7/10^6) x 5 = 0.0065).
TEST(Generator, ValuesHaveMeanZeroVarianceOneAndNoOutliers) {
  std::vector<float> row(1000);
  double sum = 0, squares = 0, largest = 0;
  for (index_t position = 0; position < 1000; ++position) {
    generate_row(1, TensorId::q, 0, position, 0, DType::f32, row);
    for (const float value : row) {
      sum += value;
      squares += static_cast<double>(value) * value;
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
  }
  EXPECT_NEAR(sum / 1e6, 0, 0.005);
  EXPECT_NEAR(squares / 1e6, 1, 0.0065);
  EXPECT_LT(largest, 3.47);
  EXPECT_GT(largest, 3);
}

// Neighbours in any one coordinate must not be alike: 4,096 pairs, |correlation| below 5/64.
TEST(Generator, EveryCoordinateChangesTheValue) {
  const auto correlation = [](const auto& other) {
    double products = 0;
    for (index_t i = 0; i < 4096; ++i) products += element(2, TensorId::q, 1, i, 1, 1) * other(i);
    return products / 4096;
  };
  constexpr double kBound = 5.0 / 64;
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(3, TensorId::q, 1, i, 1, 1); })), kBound);
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(2, TensorId::k, 1, i, 1, 1); })), kBound);
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(2, TensorId::q, 2, i, 1, 1); })), kBound);
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(2, TensorId::q, 1, i + 1, 1, 1); })), kBound);
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(2, TensorId::q, 1, i, 2, 1); })), kBound);
  EXPECT_LT(std::abs(correlation([](index_t i) { return element(2, TensorId::q, 1, i, 1, 2); })), kBound);
}

TEST(Generator, ABufferOfTheWrongSizeIsABug) {
  const std::vector<Segment> rows{{.begin = 0, .count = 3}};
  std::vector<std::byte> small(3 * 2 * 4 * 4 - 1), large(3 * 2 * 4 * 4 + 4);
  EXPECT_THROW(generate_shard(0, TensorId::q, rows, 1, 2, 4, DType::f32, small), std::logic_error);
  EXPECT_THROW(generate_shard(0, TensorId::q, rows, 1, 2, 4, DType::f32, large), std::logic_error);
}

}  // namespace
}  // namespace ringattn::launch
