// The committed real input against the definition of attention, written out once more here: what NumPy
// computed is what everybody else will be measured by.
#include "tests/files/real_input.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "launch/files/tensor_file.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;
using test::RealInput;

const RealInput kReal{RINGATTN_TEST_DATA "/smollm2_layer10"};
constexpr auto kTokens = static_cast<std::size_t>(RealInput::kTokens), kDim = std::size_t{64};

std::vector<float> all_floats(const std::string& spec, std::size_t count) {
  std::vector<float> values(count);
  const Segment all{0, RealInput::kTokens, 1};
  TensorFile::open(spec, DType::f32).read(std::span(&all, 1), std::as_writable_bytes(std::span(values)));
  return values;
}

// One head of a [tokens, heads, 64] tensor, in double; turned by its position if base > 0.
std::vector<double> head_of(const std::vector<float>& x, std::size_t heads, std::size_t head, double base) {
  std::vector<double> y(kTokens * kDim);
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t e = 0; e < kDim; e += 2) {
      const double a = x[(t * heads + head) * kDim + e], b = x[(t * heads + head) * kDim + e + 1];
      const double angle =
          base > 0 ? static_cast<double>(t) * std::pow(base, -static_cast<double>(e) / kDim) : 0;
      y[t * kDim + e] = a * std::cos(angle) - b * std::sin(angle);
      y[t * kDim + e + 1] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  return y;
}

// Causal attention of one query row of one head; returns lse.
double attend(const double* q, const std::vector<double>& k, const std::vector<double>& v, std::size_t row,
              double* out) {
  std::vector<double> weight(row + 1);
  double total = 0;
  std::fill(out, out + kDim, 0.0);
  for (std::size_t j = 0; j <= row; ++j) {
    double dot = 0;
    for (std::size_t e = 0; e < kDim; ++e) dot += q[e] * k[j * kDim + e];
    weight[j] = std::exp(dot / 8);  // the largest score is 17, so nothing overflows without the usual maximum
    total += weight[j];
  }
  for (std::size_t j = 0; j <= row; ++j) {
    for (std::size_t e = 0; e < kDim; ++e) out[e] += weight[j] / total * v[j * kDim + e];
  }
  return std::log(total);
}

// Writes out.npy and lse.npy of the whole input into a folder of f32 inputs, in f32.
void write_attention(const RealInput& wide, double rope_base) {
  const auto q = all_floats(wide.spec("q"), kTokens * 9 * kDim);
  const auto k = all_floats(wide.spec("k"), kTokens * 3 * kDim);
  const auto v = all_floats(wide.spec("v"), kTokens * 3 * kDim);
  std::vector<float> out(kTokens * 9 * kDim), lse(9 * kTokens);
  for (std::size_t h = 0; h < 9; ++h) {
    const auto qh = head_of(q, 9, h, rope_base), kh = head_of(k, 3, h / 3, rope_base),
               vh = head_of(v, 3, h / 3, 0);
    for (std::size_t row = 0; row < kTokens; ++row) {
      double result[kDim];
      lse[h * kTokens + row] = static_cast<float>(attend(&qh[row * kDim], kh, vh, row, result));
      for (std::size_t e = 0; e < kDim; ++e) out[(row * 9 + h) * kDim + e] = static_cast<float>(result[e]);
    }
  }
  const Segment rows{0, RealInput::kTokens, 1};
  PendingFile out_file = PendingFile::create(wide.spec("out"), {1, RealInput::kTokens, 9, 64}, DType::f32);
  out_file.write(std::span(&rows, 1), 1, std::as_bytes(std::span(out)));
  out_file.commit();
  PendingFile lse_file = PendingFile::create(wide.spec("lse"), {1, 9, RealInput::kTokens}, DType::f32);
  lse_file.write(std::span(&rows, 1), 2, std::as_bytes(std::span(lse)));
  lse_file.commit();
}

TEST(RealInput, ExpectedIsCausalAttentionWithInterleavedPairs) {
  const test::Scratch scratch;
  const RealInput wide{scratch.path("")};
  kReal.widen_to(wide.folder);
  write_attention(wide, RealInput::kRopeBase);
  // Outputs are up to 4 and lse up to 16: one rounding to f32 on each side is 2.4e-7 and 9.5e-7 each.
  EXPECT_LE(kReal.out_difference(wide.spec("out"), DType::f32), 5e-7);
  EXPECT_LE(kReal.lse_difference(wide.spec("lse")), 2e-6);
}

TEST(RealInput, WithoutRopeTheDifferenceIsPlain) {
  // The comparison can fail.
  const test::Scratch scratch;
  const RealInput wide{scratch.path("")};
  kReal.widen_to(wide.folder);
  write_attention(wide, 0);
  EXPECT_GT(kReal.out_difference(wide.spec("out"), DType::f32), 0.1);
  EXPECT_GT(kReal.lse_difference(wide.spec("lse")), 0.1);
}

TEST(RealInput, ANaNIsAnInfiniteDifference) {
  const test::Scratch scratch;
  const RealInput wide{scratch.path("")};
  std::vector<float> out(kTokens * 9 * kDim, 0.0f);
  out[7 * 9 * kDim + 5] = std::numeric_limits<float>::quiet_NaN();
  const Segment rows{0, RealInput::kTokens, 1};
  PendingFile file = PendingFile::create(wide.spec("out"), {1, RealInput::kTokens, 9, 64}, DType::f32);
  file.write(std::span(&rows, 1), 1, std::as_bytes(std::span(out)));
  file.commit();
  EXPECT_EQ(kReal.out_difference(wide.spec("out"), DType::f32), std::numeric_limits<double>::infinity());
}

TEST(RealInput, HalfAndBfloatOutputsAreCompared) {
  const test::Scratch scratch;
  const RealInput here{scratch.path("")};
  const Segment rows{0, RealInput::kTokens, 1};
  std::vector<double> differences;
  for (const DType dtype : {DType::f16, DType::bf16}) {
    // 1.5 everywhere: 0x3E00 in half, 0x3FC0 in bfloat16 (case A27 test 3).
    const std::vector<std::uint16_t> bits(kTokens * 9 * kDim, dtype == DType::f16 ? 0x3E00 : 0x3FC0);
    PendingFile file = PendingFile::create(here.spec("out"), {1, RealInput::kTokens, 9, 64}, dtype);
    file.write(std::span(&rows, 1), 1, std::as_bytes(std::span(bits)));
    file.commit();
    differences.push_back(kReal.out_difference(here.spec("out"), dtype));
  }
  EXPECT_GT(differences[0], 1);
  EXPECT_EQ(differences[0], differences[1]);
}

TEST(RealInput, FilesOfAnotherShapeAreNotCompared) {
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { kReal.out_difference(kReal.spec("k"), DType::f16); }),
                  "shape [1, 1021, 3, 64]"));
}

}  // namespace
}  // namespace ringattn
