// How large numbers are: whether bf16 may be multiplied as pairs, see DotRange.
#if defined(RINGATTN_CPU_MAGNITUDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_MAGNITUDES_INL_H_
#undef RINGATTN_CPU_MAGNITUDES_INL_H_
#else
#define RINGATTN_CPU_MAGNITUDES_INL_H_
#endif

#include "kernels/convert.h"
#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

Magnitude MagnitudeBf16(const void* from, index_t n) {
  const auto* bits = static_cast<const std::uint16_t*>(from);
  constexpr std::uint16_t kInfinity = 0x7F80;
  std::uint16_t largest = 0;
  for (index_t i = 0; i < n; ++i) {
    const auto size = static_cast<std::uint16_t>(bits[i] & 0x7FFF);
    largest = largest < size ? size : largest;
  }
  if (largest < kInfinity) return {.finite = true, .largest = f32_from_bf16(largest)};
  largest = 0;
  for (index_t i = 0; i < n; ++i) {
    const auto size = static_cast<std::uint16_t>(bits[i] & 0x7FFF);
    largest = largest < size && size < kInfinity ? size : largest;
  }
  return {.finite = false, .largest = f32_from_bf16(largest)};
}

float LargestFinite(const float* x, index_t n) {
  const Floats d;
  Vec largest = hn::Zero(d);
  for (index_t i = 0; i < n; i += kLanes) {
    const Vec size = hn::Abs(hn::Load(d, x + i));
    const auto finite = hn::Le(size, hn::Set(d, std::numeric_limits<float>::max()));
    largest = hn::Max(largest, hn::IfThenElseZero(finite, size));
  }
  alignas(64) float lanes[kLanes];
  hn::Store(largest, d, lanes);
  float result = 0;
  for (const float lane : lanes) result = result < lane ? lane : result;
  return result;
}

bool WithinMagnitudes(const float* x, index_t n, float lowest, float highest) {
  const Floats d;
  const Vec largest = hn::Set(d, std::numeric_limits<float>::max());
  auto outside = hn::Lt(hn::Zero(d), hn::Zero(d));
  index_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Vec size = hn::Abs(hn::LoadU(d, x + i));
    const auto low = hn::And(hn::Lt(size, hn::Set(d, lowest)), hn::Gt(size, hn::Zero(d)));
    const auto high = hn::And(hn::Gt(size, hn::Set(d, highest)), hn::Le(size, largest));
    outside = hn::Or(outside, hn::Or(low, high));
  }
  bool within = hn::AllFalse(d, outside);
  for (; i < n; ++i) {
    const float size = x[i] < 0 ? -x[i] : x[i];
    within &= !((size > 0 && size < lowest) || (size > highest && size <= std::numeric_limits<float>::max()));
  }
  return within;
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
