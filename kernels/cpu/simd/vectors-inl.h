// Vector types, the register tile and exp2 of one instruction set. Every file in this folder is included once
// for each of them (the guard flips with HWY_TARGET_TOGGLE) and keeps to its own namespace.
#if defined(RINGATTN_CPU_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_VECTORS_INL_H_
#undef RINGATTN_CPU_VECTORS_INL_H_
#else
#define RINGATTN_CPU_VECTORS_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/target.h"

// Loops over registers must disappear: an array of vectors lives in registers only if every index is known.
#undef RINGATTN_UNROLL
#define RINGATTN_UNROLL _Pragma("GCC unroll 32")

// Higher targets have lower numbers on x86.
#undef RINGATTN_AVX2
#undef RINGATTN_AVX512
#define RINGATTN_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)
#define RINGATTN_AVX2 (HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2)

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Ints = hn::RebindToSigned<Floats>;
using Vec = hn::Vec<Floats>;

inline constexpr int kLanes = static_cast<int>(HWY_LANES(float));

// A register tile is kRows rows (keys for scores, columns of V for the output) by kVecs vectors of queries:
// 24 accumulators of 32 registers, or 12 of 16.
#if RINGATTN_AVX512
inline constexpr int kRows = 8, kVecs = 3;
#else
inline constexpr int kRows = 4, kVecs = 3;
#endif
// Queries of a tile; a group is one strip of 48 lanes on AVX-512, two of 24 on AVX2.
inline constexpr int kStrip = kVecs * kLanes;
inline constexpr int kStrips = kGroup / kStrip;
static_assert(kGroup % kStrip == 0 && kPanel % kRows == 0);

// Keys of a step. 24 accumulators leave the loads of a tile time to come from the L2 cache, and longer sums
// in registers save more; 12 do not (4 to 7 points of the peak), so that P must stay in the L1 cache.
inline constexpr int kTargetStepKeys = RINGATTN_AVX512 ? kStepKeys : kKeyBlock;

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();

HWY_INLINE int Least(int a, int b) { return a < b ? a : b; }
HWY_INLINE int Greatest(int a, int b) { return a > b ? a : b; }

// 2^f for f in [-1/2, 1/2]: a polynomial of degree 5, exact at 0, near minimax in fp32.
//
// Of both forms below the relative error is at most 1.8e-7 where the result is at least 2^-126 (1.9e-7
// without fused multiply-adds), its rounding included: of every float up to 127, on every instruction set
// (tests/kernels/exp2_all).
// Of degree 4 (2.9e-6) or 3 (1.1e-4) for what is rounded to bf16.
template <int kDegree>
HWY_INLINE Vec Exp2Fraction(Vec f) {
  static_assert(3 <= kDegree && kDegree <= 5);
  const Floats d;
  if constexpr (kDegree == 3) {
    Vec p = hn::Set(d, 0.0550089426f);
    p = hn::MulAdd(p, f, hn::Set(d, 0.242211027f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.693282933f));
    return hn::MulAdd(p, f, hn::Set(d, 1.0f));
  } else if constexpr (kDegree == 4) {
    Vec p = hn::Set(d, 0.00958285524f);
    p = hn::MulAdd(p, f, hn::Set(d, 0.0559064342f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.240240986f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.693124192f));
    return hn::MulAdd(p, f, hn::Set(d, 1.0f));
  }
  Vec p = hn::Set(d, 0.00132764259f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.00967671443f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.0555076338f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.240221515f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.693146944f));
  return hn::MulAdd(p, f, hn::Set(d, 1.0f));
}

#if RINGATTN_AVX512
// 2^x for x <= 127. Exactly 1 for 0 and 0 for -inf, NaN for NaN. Where the result is below 2^-126 it is
// denormal, rounded correctly: flushing it to 0 takes a compare, 19% of this function, and gains nothing
// where denormal numbers are as fast as others, as on Zen 4 (bench/README.md).
template <int kDegree = 5>
HWY_INLINE Vec Exp2(Vec x) {
  // vscalefps multiplies by a power of two with any exponent, and vscalefps(NaN, -inf) is +0: so x = -inf,
  // whose fraction is -inf - -inf = NaN, needs no care.
  const Vec whole = hn::Round(x);
  return Vec{_mm512_scalef_ps(Exp2Fraction<kDegree>(hn::Sub(x, whole)).raw, whole.raw)};
}
#else
// `x` or, if that is more, `lowest`; NaN stays NaN.
HWY_INLINE Vec NotBelow(Vec lowest, Vec x) {
#if RINGATTN_AVX2
  return hn::Max(lowest,
                 x);  // vmaxps returns its second operand if either is NaN; other targets' Max may not
#else
  return hn::IfThenElse(hn::Lt(x, lowest), lowest, x);
#endif
}

// Adding this leaves round(x) + 127 in the low bits of the mantissa; shifted to the exponent's place they are
// 2^round(x). For x = -127 that is the bit pattern of 0, so a clamp there makes -inf, and all below -126.5,
// exactly 0.
inline constexpr float kMagic = 12582912.0f + 127.0f;  // 1.5 * 2^23 + 127
HWY_INLINE Vec PowerOf(Vec shifted) {
  return hn::BitCast(Floats(), hn::ShiftLeft<23>(hn::BitCast(Ints(), shifted)));
}

// 2^x for x <= 127. Exactly 1 for 0 and 0 for -inf, NaN for NaN. Results below 2^-126.5 are 0; the half
// octave above, up to 2^-126, is denormal.
template <int kDegree = 5>
HWY_INLINE Vec Exp2(Vec x) {
  const Floats d;
  x = NotBelow(hn::Set(d, -127.0f), x);
  const Vec shifted = hn::Add(x, hn::Set(d, kMagic));
  const Vec fraction = hn::Sub(x, hn::Sub(shifted, hn::Set(d, kMagic)));
  return hn::Mul(Exp2Fraction<kDegree>(fraction), PowerOf(shifted));
}
#endif

// The factor `slope` in [1, 2) of Exp2Scaled, and -127 / slope.
struct Slope {
  float slope, lowest;
};
HWY_INLINE Slope MakeSlope(float slope) { return {slope, -127.0f / slope}; }

// 2^(slope * t) for slope * t <= 127, like Exp2; the product is rounded at most once.
template <int kDegree = 5>
HWY_INLINE Vec Exp2Scaled(Vec t, Slope factor) {
  const Floats d;
  const Vec slope = hn::Set(d, factor.slope);
#if RINGATTN_AVX512
  return Exp2<kDegree>(hn::Mul(t, slope));
#else
  t = NotBelow(hn::Set(d, factor.lowest), t);
  const Vec shifted = hn::MulAdd(t, slope, hn::Set(d, kMagic));
  const Vec fraction = hn::MulSub(t, slope, hn::Sub(shifted, hn::Set(d, kMagic)));
  return hn::Mul(Exp2Fraction<kDegree>(fraction), PowerOf(shifted));
#endif
}

// `x` or, if that is less, 0; NaN stays NaN.
HWY_INLINE Vec NotAboveZero(Vec x) {
  const Vec zero = hn::Zero(Floats());
#if RINGATTN_AVX512 || RINGATTN_AVX2
  return hn::Min(zero, x);  // vminps returns its second operand if either is NaN; other targets' Min may not
#else
  return hn::IfThenElse(hn::Gt(x, zero), zero, x);
#endif
}

// Lanes [first, last) of the `kLanes` lanes that start at lane `start`.
HWY_INLINE hn::Mask<Floats> LanesBetween(int start, int first, int last) {
  alignas(64) static constexpr std::int32_t kIota[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                         8, 9, 10, 11, 12, 13, 14, 15};
  static_assert(kLanes <= 16);
  const Ints d;
  // Not hn::Iota with a run-time base, which g++ sends through the stack.
  const auto lane = hn::Load(d, kIota);
  const auto inside = hn::AndNot(hn::VecFromMask(d, hn::Lt(lane, hn::Set(d, first - start))),
                                 hn::VecFromMask(d, hn::Lt(lane, hn::Set(d, last - start))));
  return hn::RebindMask(Floats(), hn::MaskFromVec(inside));
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
