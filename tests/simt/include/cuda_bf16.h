// Stand-in for cuda_bf16.h: storage type and conversions (round to nearest even, as the hardware does).
#pragma once
#include <cstdint>

#include "kernels/convert.h"

struct __nv_bfloat16 {
  std::uint16_t bits;
};
using nv_bfloat16 = __nv_bfloat16;

inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  if (f != f) return {0x7FFF};  // the one NaN that the hardware's conversion makes
  return {ringattn::bf16_from_f32(f)};
}
inline __nv_bfloat16 __float2bfloat16(float f) { return __float2bfloat16_rn(f); }
inline float __bfloat162float(__nv_bfloat16 b) { return ringattn::f32_from_bf16(b.bits); }
