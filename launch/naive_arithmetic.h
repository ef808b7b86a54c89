// How a naive implementation stores what it has computed: rounded to the tensors' own type.
#pragma once
#include <span>

#include "launch/element.h"

namespace ringattn::launch {

// As the type would store it; f32 takes the short way.
inline float narrow(DType type, double value) {
  return type == DType::f32 ? static_cast<float>(value) : rounded(type, static_cast<float>(value));
}

// In fp32, in the order of the elements.
inline float naive_dot(DType type, std::span<const float> a, std::span<const double> b) {
  float sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += a[e] * narrow(type, b[e]);
  return sum;
}

}  // namespace ringattn::launch
