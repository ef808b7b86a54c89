// Dense float64 arrays, as the reference takes and gives them.
#pragma once
#include <span>
#include <string>

#include "src/error.h"
#include "src/types.h"

namespace ringattn {

// [batch, rows, heads, dim]
template <class Double>
struct DenseArray {
  std::span<Double> data;
  index_t rows, heads, dim;
  std::span<Double> row(index_t batch, index_t i, index_t head) const {
    const index_t first = ((batch * rows + i) * heads + head) * dim;
    return data.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(dim));
  }
};

// Throws UsageError naming the array if its size does not fit.
inline DenseArray<const double> dense_array(const char* name, std::span<const double> data, index_t batch,
                                            index_t rows, index_t heads, index_t dim) {
  const index_t size = batch * rows * heads * dim;
  if (data.size() != static_cast<std::size_t>(size))
    throw UsageError(std::string(name) + " has " + std::to_string(data.size()) + " elements, " +
                     std::to_string(size) + " are needed");
  return {data, rows, heads, dim};
}

inline double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += a[e] * b[e];
  return sum;
}

}  // namespace ringattn
