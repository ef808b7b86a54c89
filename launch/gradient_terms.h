// A dot product in float64, and the size of what was added up for it.
#pragma once
#include <cmath>
#include <span>

namespace ringattn::launch {

// magnitude: root of the sum of the squared products. fp32 rounds each of them apart, so this is the size of
// number whose rounding the sum carries, even where the products cancel.
struct DotProduct {
  double sum = 0, magnitude = 0;
};

inline DotProduct sum_of_products(std::span<const double> a, std::span<const double> b) {
  DotProduct result;
  for (std::size_t e = 0; e < a.size(); ++e) {
    const double product = a[e] * b[e];
    result.sum += product;
    result.magnitude += product * product;
  }
  result.magnitude = std::sqrt(result.magnitude);
  return result;
}

}  // namespace ringattn::launch
