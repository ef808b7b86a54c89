// The state of a span of keys is added to the state of all keys before it.
#if defined(RINGATTN_CPU_FOLD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RINGATTN_CPU_FOLD_INL_H_
#undef RINGATTN_CPU_FOLD_INL_H_
#else
#define RINGATTN_CPU_FOLD_INL_H_
#endif

#include "kernels/cpu/simd/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ringattn::cpu::HWY_NAMESPACE {

// `part` began with the shift of `whole`, and may have raised it. It is left with o = sum = weight = 0.
void Fold(const GroupView& part, const GroupView& whole, int dim_v, float slope) {
  const Floats d;
  const Vec zero = hn::Zero(d), neg_inf = hn::Set(d, kNegInf);
  for (int lane = 0; lane < kGroup; lane += kLanes) {
    const Vec old_limit = hn::Load(d, whole.rows->limit + lane), limit = hn::Load(d, part.rows->limit + lane);
    const Vec old_shift = hn::Load(d, whole.rows->shift + lane), shift = hn::Load(d, part.rows->shift + lane);
    // As in Rescale: a lane that had seen nothing has o = sum = 0, and an old maximum of -inf.
    const Vec old = hn::IfThenElse(hn::Eq(old_limit, neg_inf), neg_inf, old_shift);
    const Vec fall = Exp2Scaled(hn::Sub(old, shift), MakeSlope(slope));
    const Vec factor = hn::IfThenElse(hn::Eq(old_limit, limit), hn::Set(d, 1.0f), fall);
    hn::Store(limit, d, whole.rows->limit + lane);
    hn::Store(shift, d, whole.rows->shift + lane);
    const auto fold_row = [&](float* from, float* to) {
      hn::Store(hn::MulAdd(hn::Load(d, to), factor, hn::Load(d, from)), d, to);
      hn::Store(zero, d, from);
    };
    fold_row(part.rows->sum + lane, whole.rows->sum + lane);
    fold_row(part.rows->weight + lane, whole.rows->weight + lane);
    for (int c = 0; c < dim_v; ++c) fold_row(part.o + c * kGroup + lane, whole.o + c * kGroup + lane);
  }
}

}  // namespace ringattn::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard
