// The measured ceiling of one instruction set, and proof that this translation unit keeps NaN and infinity.
#if defined(RINGATTN_CPU_CHECKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_CHECKS_INL_H_
#undef RINGATTN_CPU_CHECKS_INL_H_
#else
#define RINGATTN_CPU_CHECKS_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

// As many independent chains as the kernel has accumulators; no memory is touched.
float FmaChains(index_t iterations, float seed) {
  const Floats d;
  // x -> x / 2 + 1/2 stays near 1 for ever: no overflow, no denormals.
  const Vec half = hn::Set(d, seed * 0.5f);
  Vec acc[kRows][kVecs];
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) {
      acc[r][v] = hn::Set(d, seed + static_cast<float>(r * kVecs + v));
    }
  }
  for (index_t i = 0; i < iterations; ++i) {
    RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
      RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(acc[r][v], half, half);
    }
  }
  Vec sum = hn::Zero(d);
  RINGATTN_UNROLL for (int r = 0; r < kRows; ++r) {
    RINGATTN_UNROLL for (int v = 0; v < kVecs; ++v) sum = hn::Add(sum, acc[r][v]);
  }
  alignas(64) float lanes[kLanes];
  hn::Store(sum, d, lanes);
  return lanes[0];
}
inline constexpr int kFmaFlops = 2 * kRows * kVecs * kLanes;

// Eight chains of maxima: nothing but loads can be the limit.
float ReadAll(const float* x, index_t n) {
  const Floats d;
  Vec top[8];
  RINGATTN_UNROLL for (int c = 0; c < 8; ++c) top[c] = hn::Zero(d);
  for (index_t i = 0; i < n; i += 8 * kLanes) {
    RINGATTN_UNROLL for (int c = 0; c < 8; ++c) top[c] = hn::Max(top[c], hn::Load(d, x + i + c * kLanes));
  }
  RINGATTN_UNROLL for (int c = 1; c < 8; ++c) top[0] = hn::Max(top[0], top[c]);
  return hn::GetLane(top[0]);
}

void Exp2Array(const float* x, index_t n, float slope, float* to) {
  const Floats d;
  alignas(64) float chunk[kLanes];
  for (index_t i = 0; i < n; i += kLanes) {
    const int valid = static_cast<int>(n - i < kLanes ? n - i : kLanes);
    for (int lane = 0; lane < valid; ++lane) chunk[lane] = x[i + lane];
    for (int lane = valid; lane < kLanes; ++lane) chunk[lane] = 0.0f;
    hn::Store(Exp2Scaled(hn::Load(d, chunk), MakeSlope(slope)), d, chunk);
    for (int lane = 0; lane < valid; ++lane) to[i + lane] = chunk[lane];
  }
}

// What fast-math would break. The values are hidden from the optimiser, so that it cannot answer from theory.
const char* SelfTest() {
  volatile float hidden_inf = std::numeric_limits<float>::infinity();
  volatile float hidden_nan = std::numeric_limits<float>::quiet_NaN();
  const float neg_inf = -hidden_inf, nan = hidden_nan;
  if (!std::isinf(neg_inf)) return "isinf(-inf) is false";
  if (!std::isnan(nan)) return "isnan(NaN) is false";
  if (neg_inf > kNegInf) return "-inf > -inf is true";
  if (nan == nan) return "NaN == NaN is true";

  const Floats d;
  alignas(64) float result[kLanes];
  hn::Store(Exp2Scaled(hn::Set(d, neg_inf), MakeSlope(1.0f)), d, result);
  if (result[0] != 0.0f) return "exp2(-inf) is not 0";
  hn::Store(Exp2Scaled(hn::Set(d, nan), MakeSlope(1.0f)), d, result);
  if (!std::isnan(result[0])) return "exp2(NaN) is not NaN";
  if (!hn::AllFalse(d, hn::Gt(hn::Set(d, neg_inf), hn::Set(d, -1e30f)))) return "-inf > -1e30 in a vector";
  if (!hn::AllFalse(d, hn::Eq(hn::Set(d, nan), hn::Set(d, nan)))) return "NaN == NaN in a vector";
  return nullptr;
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
