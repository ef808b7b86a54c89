// How softmax_scale is applied.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cuda/params.h"

namespace ringattn::cuda {

// softmax_scale * log2(e) is a power of two with a sign, which changes no bit of a mantissa, times a slope in
// [1, 2), applied in fp32 to the difference of a score and the maximum: so scores carry no error but that of
// summing, and equal scores have weight 1 exactly. fp32 queries are multiplied by the power when they are
// loaded, as on the CPU; 16-bit ones could leave their range, so that they are given the sign and their
// scores the rest: the largest product of a row is then its largest score.
struct Scaling {
  double query = 1;                        // what loaded queries are multiplied by
  Scores scores{.factor = 1, .slope = 1};  // factor >= 0

  // What remains to be multiplied to the sums of dK, which are formed with loaded queries.
  double rest(double softmax_scale) const { return softmax_scale == 0 ? 0 : softmax_scale / query; }
};

inline Scaling scaling_of(double softmax_scale, DType dtype) {
  if (softmax_scale == 0)
    return dtype == DType::f32 ? Scaling{.query = 0} : Scaling{.scores = {.factor = 0, .slope = 1}};
  int exponent = 0;
  const double mantissa = std::frexp(softmax_scale, &exponent);  // 1/2 <= |mantissa| < 1
  const double slope = std::fabs(mantissa) * std::numbers::log2e;
  const int shift = slope < 1 ? -1 : 0;
  const double power = std::copysign(std::ldexp(1.0, exponent + shift), softmax_scale);
  Scaling scaling{.scores = {.factor = 1, .slope = static_cast<float>(std::ldexp(slope, -shift))}};
  if (dtype == DType::f32) {
    scaling.query = power;
  } else {
    scaling.query = std::copysign(1.0, softmax_scale);
    // Beyond 2^127 every score but 0 has all the weight or none, as with 2^127 itself.
    scaling.scores.factor = static_cast<float>(std::min(std::fabs(power), 0x1p127));
  }
  return scaling;
}

}  // namespace ringattn::cuda
