#include "tests/kernels/exp2_sweep.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace ringattn::test {
namespace {

constexpr double kLeastNormal = 0x1p-126, kSpacing = 0x1p-149;

// What is allowed for an input whatever the function does.
double rounding_of_product(double exponent, float slope) {
  return slope == 1 ? 0 : std::fabs(exponent) * 0x1p-24 * std::numbers::ln2;
}

void judge(float x, float y, double truth, double allowed, Exp2Sweep& sweep) {
  if (!(y >= 0) || std::isinf(y)) {
    ++sweep.junk;
    sweep.junk_at = x;
    return;
  }
  if (y > 0 && y < kLeastNormal) ++sweep.denormals;
  if (truth >= kLeastNormal) {
    const double error = std::fabs(y / truth - 1) - allowed;
    if (error > sweep.worst_relative) sweep.worst_relative = error, sweep.worst_at = x;
  } else if (y != 0) {
    const double error = (std::fabs(y - truth) - truth * (kExp2Error + allowed)) / kSpacing;
    if (error > sweep.worst_denormal) sweep.worst_denormal = error, sweep.worst_denormal_at = x;
  }
}

// Inputs at a time; a multiple of every target's vector, and small enough for the L1 cache.
constexpr std::size_t kChunk = 1024;

class Sweeper {
 public:
  explicit Sweeper(float slope) : slope_(slope) {
    for (const cpu::Target* target : cpu::targets()) {
      results_.emplace_back();
      results_.back().target = target;
      results_.back().slope = slope;
    }
  }

  // Floats with bit patterns first, first + step .. up to last.
  void over(std::uint32_t first, std::uint32_t last, std::uint32_t step) {
    for (std::uint64_t bits = first; bits <= last; bits += step) {
      x_[filled_++] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      if (filled_ == kChunk) flush();
    }
    flush();
  }

  std::vector<Exp2Sweep> results() const { return results_; }

 private:
  void flush() {
    for (std::size_t i = 0; i < filled_; ++i) {
      const double exponent = double{x_[i]} * double{slope_};  // exact: 24 and 24 bits
      truth_[i] = std::exp2(exponent);
      allowed_[i] = rounding_of_product(exponent, slope_);
    }
    for (Exp2Sweep& sweep : results_) {
      std::fill_n(y_, filled_, std::nanf(""));
      sweep.target->exp2(x_, static_cast<index_t>(filled_), slope_, y_);
      for (std::size_t i = 0; i < filled_; ++i) judge(x_[i], y_[i], truth_[i], allowed_[i], sweep);
      sweep.inputs += filled_;
    }
    filled_ = 0;
  }

  float slope_;
  std::size_t filled_ = 0;
  alignas(64) float x_[kChunk], y_[kChunk];
  double truth_[kChunk], allowed_[kChunk];
  std::vector<Exp2Sweep> results_;
};

}  // namespace

std::vector<Exp2Sweep> sweep_exp2(float slope, std::uint32_t step) {
  Sweeper sweeper(slope);
  float highest = 127.0f / slope;
  if (double{highest} * double{slope} > 127) highest = std::nextafter(highest, 0.0f);
  sweeper.over(std::bit_cast<std::uint32_t>(-0.0f),
               std::bit_cast<std::uint32_t>(-std::numeric_limits<float>::infinity()), step);
  sweeper.over(0, std::bit_cast<std::uint32_t>(highest), step);
  return sweeper.results();
}

}  // namespace ringattn::test
