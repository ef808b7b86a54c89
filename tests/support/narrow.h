// Elements of the caller's dtypes, for tests: exact encoding and decoding by arithmetic on doubles, written
// from the formats' definition so that nothing is shared with the kernels' bit tricks.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "src/types.h"

namespace ringattn::test {

struct Format {
  int mantissa_bits, exponent_bits;
};
inline constexpr Format kBf16{7, 8}, kF16{10, 5};

// The nearest value of the format (ties to even), as bits.
inline std::uint16_t encode(double x, Format f) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const auto infinity = static_cast<std::uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | infinity | (1 << (f.mantissa_bits - 1)));
  const double a = std::fabs(x);
  if (a == 0) return sign;
  if (std::isinf(a)) return static_cast<std::uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(a), 1 - bias);  // the smallest one is shared with subnormals
  const double units = std::nearbyint(std::ldexp(a, f.mantissa_bits - exponent));
  // `units` counts ulps; a mantissa that rounds up to the next power of two carries into the exponent by
  // itself.
  const auto bits =
      static_cast<std::int64_t>(units) + (static_cast<std::int64_t>(exponent + bias - 1) << f.mantissa_bits);
  return static_cast<std::uint16_t>(sign | (bits >= infinity ? infinity : bits));
}

inline double decode(std::uint16_t bits, Format f) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = (bits >> f.mantissa_bits) & ((1 << f.exponent_bits) - 1);
  const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << f.exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  const int full = exponent == 0 ? mantissa : mantissa + (1 << f.mantissa_bits);
  return sign * std::ldexp(full, std::max(exponent, 1) - bias - f.mantissa_bits);
}

// What `x` becomes when it is stored as `t`.
inline double stored(double x, DType t) {
  switch (t) {
    case DType::bf16:
      return decode(encode(x, kBf16), kBf16);
    case DType::f16:
      return decode(encode(x, kF16), kF16);
    case DType::f32:
      break;
  }
  return static_cast<float>(x);
}

inline void store(double x, DType t, std::byte* to) {
  if (t == DType::f32) {
    const auto f = static_cast<float>(x);
    std::memcpy(to, &f, 4);
  } else {
    const std::uint16_t bits = encode(x, t == DType::bf16 ? kBf16 : kF16);
    std::memcpy(to, &bits, 2);
  }
}

inline double load(const std::byte* from, DType t) {
  if (t == DType::f32) {
    float f = 0;
    std::memcpy(&f, from, 4);
    return f;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, 2);
  return decode(bits, t == DType::bf16 ? kBf16 : kF16);
}

}  // namespace ringattn::test
