// exp2 of every instruction set over the floats up to 127 / slope, against exp2 in double: every step-th of
// them, or all of them with step 1.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/cpu/target.h"

namespace ringattn::test {

// What one instruction set does with one slope. The true result is exp2(slope * x) of the exact product.
struct Exp2Sweep {
  const cpu::Target* target = nullptr;
  float slope = 1;
  std::uint64_t inputs = 0, denormals = 0;  // results between 0 and 2^-126
  // Where the true result is at least 2^-126: the relative error, less what the rounding of slope * x may
  // cause. That is half a unit of the product, which exp2 makes a relative error of |slope x| 2^-24 ln 2;
  // none for slope 1.
  double worst_relative = 0;
  float worst_at = 0;
  // Where it is less: the distance in units of 2^-149, the spacing of denormal numbers, less the relative
  // part of the above. 0 is a right answer there and counts as no error.
  double worst_denormal = 0;
  float worst_denormal_at = 0;
  // Results that are negative, infinite or NaN; of their inputs the last.
  std::uint64_t junk = 0;
  float junk_at = 0;
};

// A bound for worst_relative, the result's rounding included. All floats were swept: 1.78e-7 with fused
// multiply-adds, 1.87e-7 without.
inline constexpr double kExp2Error = 1.9e-7;

// Sweeps all targets at once, since the reference takes most of the time. From -0 down to -infinity, then
// from 0 up; `step` 1 makes 3.26 * 10^9 inputs for slope 1.
std::vector<Exp2Sweep> sweep_exp2(float slope, std::uint32_t step);

}  // namespace ringattn::test
