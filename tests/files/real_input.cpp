#include "tests/files/real_input.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "launch/files/stored_tensor.h"
#include "launch/files/tensor_file.h"
#include "src/error.h"

namespace ringattn::test {
namespace {

// IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction.
float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

float from_bits(const std::byte* at, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return dtype == DType::f16 ? from_half(bits) : std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// Rows of axis 1 as floats.
std::vector<float> read_floats(const TensorFile& file, const Segment& rows, std::size_t count) {
  std::vector<std::byte> bytes(count * size_of(file.dtype()));
  file.read(std::span(&rows, 1), bytes);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = from_bits(bytes.data() + i * size_of(file.dtype()), file.dtype());
  return values;
}

TensorFile open_with_shape(const std::string& spec, std::optional<DType> dtype,
                           const std::vector<index_t>& shape) {
  TensorFile file = TensorFile::open(spec, dtype);
  if (file.shape() != shape) {
    throw UsageError(spec + ": shape " + shape_text(file.shape()) + ", expected " + shape_text(shape));
  }
  return file;
}

double largest_difference(const std::vector<float>& found, const std::vector<float>& expected) {
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    // NaN compares false with everything and would pass for no difference.
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace

void RealInput::widen_to(const std::filesystem::path& other) const {
  constexpr Segment kAll{0, kTokens, 1};
  for (const auto& [name, heads] :
       {std::pair{"q", kHeads}, std::pair{"k", kHeadsKv}, std::pair{"v", kHeadsKv}}) {
    const std::vector<index_t> shape{1, kTokens, heads, kHeadDim};
    const TensorFile half = open_with_shape(spec(name), DType::f16, shape);
    const auto values = read_floats(half, kAll, static_cast<std::size_t>(kTokens * heads * kHeadDim));
    PendingFile wide = PendingFile::create(RealInput{other}.spec(name), shape, DType::f32);
    wide.write(std::span(&kAll, 1), 1, std::as_bytes(std::span(values)));
    wide.commit();
  }
}

double RealInput::out_difference(const std::string& out_spec, DType dtype) const {
  constexpr auto kCount = static_cast<std::size_t>(kExpectedRows.count * kHeads * kHeadDim);
  const TensorFile expected =
      open_with_shape(spec("expected_out"), DType::f32, {1, kExpectedRows.count, kHeads, kHeadDim});
  const TensorFile out = open_with_shape(out_spec, dtype, {1, kTokens, kHeads, kHeadDim});
  return largest_difference(read_floats(out, kExpectedRows, kCount),
                            read_floats(expected, {0, kExpectedRows.count, 1}, kCount));
}

double RealInput::lse_difference(const std::string& lse_spec) const {
  constexpr Segment kAllHeads{0, kHeads, 1};
  constexpr auto kCount = static_cast<std::size_t>(kHeads * kTokens);
  const TensorFile expected = open_with_shape(spec("expected_lse"), DType::f32, {1, kHeads, kTokens});
  const TensorFile lse = open_with_shape(lse_spec, DType::f32, {1, kHeads, kTokens});
  return largest_difference(read_floats(lse, kAllHeads, kCount), read_floats(expected, kAllHeads, kCount));
}

}  // namespace ringattn::test
