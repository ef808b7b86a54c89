// The two 16-bit formats as the matrix units read them.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace simt {

enum class Element { bf16, f16 };

template <class T>
struct ElementOf;
template <>
struct ElementOf<__nv_bfloat16> {
  static constexpr Element value = Element::bf16;
};
template <>
struct ElementOf<__half> {
  static constexpr Element value = Element::f16;
};

inline float to_float(Element e, std::uint16_t bits) {
  return e == Element::bf16 ? ringattn::f32_from_bf16(bits) : ringattn::f32_from_f16(bits);
}
// Registers hold pairs, the lower column in the lower half.
inline float low_of(Element e, std::uint32_t pair) { return to_float(e, static_cast<std::uint16_t>(pair)); }
inline float high_of(Element e, std::uint32_t pair) {
  return to_float(e, static_cast<std::uint16_t>(pair >> 16));
}
inline std::uint32_t pack(Element e, float low, float high) {
  const auto bits = [e](float x) -> std::uint32_t {
    return e == Element::bf16 ? __float2bfloat16_rn(x).bits : __float2half_rn(x).bits;
  };
  return bits(low) | bits(high) << 16;
}

}  // namespace simt
