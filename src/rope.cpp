#include "src/rope.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "src/refuse.h"

namespace ringattn {
namespace {

std::string exactly(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

// An option that would change nothing is refused rather than dropped.
void require_untouched(const Rope& rope) {
  const Rope untouched;
  const std::string why = "rope pairing is none, so it must be left at ";
  if (rope.base != untouched.base) refuse("rope base", exactly(rope.base), why + exactly(untouched.base));
  if (rope.dim != 0) refuse("rope dim", std::to_string(rope.dim), why + "0");
  if (rope.position_offset != 0) {
    refuse("rope position_offset", std::to_string(rope.position_offset), why + "0");
  }
}

}  // namespace

std::string_view name_of(Rope::Pairing p) {
  switch (p) {
    case Rope::Pairing::none:
      return "none";
    case Rope::Pairing::half:
      return "half";
    case Rope::Pairing::interleaved:
      return "interleaved";
  }
  return "invalid";
}

Rope::Pairing pairing_from_name(std::string_view s) {
  for (const auto p : {Rope::Pairing::none, Rope::Pairing::half, Rope::Pairing::interleaved}) {
    if (s == name_of(p)) return p;
  }
  refuse("rope", quoted(s), "allowed are none, half and interleaved");
}

index_t rotary_dim(const Rope& rope, index_t head_dim) {
  if (rope.pairing == Rope::Pairing::none) return 0;
  return rope.dim != 0 ? rope.dim : head_dim;
}

void validate(const Rope& rope, index_t head_dim) {
  if (rope.pairing == Rope::Pairing::none) {
    require_untouched(rope);
    return;
  }
  if (!std::isfinite(rope.base) || rope.base <= 0) {
    refuse("rope base", exactly(rope.base), "allowed is any finite number above 0");
  }
  require_between("rope dim", rope.dim, 0, head_dim);
  if (rope.dim == 0 && head_dim % 2 != 0) {
    refuse("head_dim", std::to_string(head_dim),
           "rope over the whole head needs an even one (or an even rope dim below it)");
  }
  if (rope.dim % 2 != 0) refuse("rope dim", std::to_string(rope.dim), "allowed are even numbers");
  require_between("rope position_offset", rope.position_offset, -Rope::kMaxOffset, Rope::kMaxOffset);
}

RotaryAngles::RotaryAngles(const Rope& rope, index_t head_dim)
    : offset_(rope.position_offset), pairs_(rotary_dim(rope, head_dim) / 2) {
  validate(rope, head_dim);
  require_between("head_dim", head_dim, 1, 2 * static_cast<index_t>(frequency_.size()));
  const auto dim = static_cast<double>(2 * pairs_);
  for (index_t p = 0; p < pairs_; ++p) {
    frequency_[static_cast<std::size_t>(p)] = std::pow(rope.base, -2.0 * static_cast<double>(p) / dim);
  }
}

void RotaryAngles::at(index_t position, std::span<float> cos, std::span<float> sin) const {
  // Two doubles are added, not two integers, so that no position of the caller's can overflow.
  const double turned = static_cast<double>(position) + static_cast<double>(offset_);
  for (std::size_t p = 0; p < static_cast<std::size_t>(pairs_); ++p) {
    const double angle = turned * frequency_[p];
    cos[p] = static_cast<float>(std::cos(angle));
    sin[p] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace ringattn
