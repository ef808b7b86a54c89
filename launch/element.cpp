#include "launch/element.h"

#include <bit>
#include <cstdint>
#include <cstring>

namespace ringattn::launch {
namespace {

constexpr std::uint32_t kInfinity = 0x7F800000u;

std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~0x80000000u) > kInfinity) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  // Just under half a unit, and the last kept bit on top: ties go to even.
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t f16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & ~0x80000000u;
  std::uint32_t half;
  if (magnitude > kInfinity) {
    half = 0x7E00u;
  } else if (magnitude >= 0x477FF000u) {  // 65520, half way between the largest f16 and 2^16
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: subnormal
    // fp32 numbers around 0.5 are 2^-24 apart, as f16 subnormals are: the addition rounds as needed.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float from_f16(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1Fu,
                      fraction = half & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | kInfinity | (fraction << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float value = static_cast<float>(fraction) * 0x1p-24f;
  return sign ? -value : value;
}

}  // namespace

float load_element(DType type, const std::byte* at) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if (type == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  return from_f16(bits);
}

void store_element(DType type, float value, std::byte* at) {
  if (type == DType::f32) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  const std::uint16_t bits = type == DType::bf16 ? bf16_bits(value) : f16_bits(value);
  std::memcpy(at, &bits, sizeof bits);
}

float rounded(DType type, float value) {
  std::byte bytes[4];
  store_element(type, value, bytes);
  return load_element(type, bytes);
}

}  // namespace ringattn::launch
