// Stand-in for cuda_fp16.h: storage type and conversions (round to nearest even, as the hardware does).
#pragma once
#include <cstdint>

#include "kernels/convert.h"

struct __half {
  std::uint16_t bits;
};
using half = __half;

inline __half __float2half_rn(float f) {
  if (f != f) return {0x7FFF};  // the one NaN that the hardware's conversion makes
  return {ringattn::f16_from_f32(f)};
}
inline __half __float2half(float f) { return __float2half_rn(f); }
inline float __half2float(__half h) { return ringattn::f32_from_f16(h.bits); }
