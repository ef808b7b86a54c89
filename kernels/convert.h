// Conversions between fp32 and the two 16-bit formats, one element at a time, free of branches so that
// compilers vectorise loops over them. Widening is exact. Narrowing rounds to nearest even, overflows to
// infinity, and keeps NaN a NaN (case A6).
#pragma once
#include <bit>
#include <cstdint>

namespace ringattn {

// bfloat16 is the upper half of an fp32.
constexpr float f32_from_bf16(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

constexpr std::uint16_t bf16_from_f32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  // Adding just under half a unit, or half where the kept part is odd, carries exactly when rounding goes up;
  // a carry out of the largest finite value gives infinity by itself.
  const std::uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x0040u;  // the payload may lie in the half that is cut off
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<std::uint16_t>(nan ? quiet : rounded);
}

// IEEE binary16: 5 exponent bits (bias 15), 10 mantissa bits.
constexpr float f32_from_f16(std::uint16_t x) {
  const std::uint32_t sign = std::uint32_t{x & 0x8000u} << 16;
  const std::uint32_t magnitude = std::uint32_t{x & 0x7FFFu} << 13;
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  std::uint32_t bits = magnitude + kRebias;
  if (magnitude >= 0x1Fu << 23) bits += kRebias;  // infinity and NaN: the exponent field becomes 255
  // A subnormal is its mantissa in units of 2^-24. Formed from the integer, so that a process that flushes
  // denormals reads it right.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(x & 0x3FFu)) * 0x1p-24f;
  if (magnitude < 1u << 23) bits = std::bit_cast<std::uint32_t>(subnormal);
  return std::bit_cast<float>(bits | sign);
}

constexpr std::uint16_t f16_from_f32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  constexpr std::uint32_t kRebias = (127u - 15u) << 23;
  std::uint32_t half = (magnitude - kRebias + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the result is subnormal: adding 0.5, whose last bit is worth 2^-24, lets the addition itself
  // round to that unit.
  const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
  if (magnitude < 113u << 23) half = small - std::bit_cast<std::uint32_t>(0.5f);
  if (magnitude >= 0x477FF000u) half = 0x7C00u;  // 65520 and above round to infinity
  if (magnitude > 0x7F800000u) half = 0x7E00u;   // NaN
  return static_cast<std::uint16_t>(half | sign);
}

}  // namespace ringattn
