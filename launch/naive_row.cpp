#include "launch/naive_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "launch/naive_arithmetic.h"

namespace ringattn::launch {
RowOutput naive_row(DType type, const RowInputs& inputs) {
  RowOutput result{.out = std::vector<double>(static_cast<std::size_t>(inputs.head_dim_v), 0.0),
                   .lse = -std::numeric_limits<double>::infinity()};
  const float scale = static_cast<float>(inputs.softmax_scale);
  std::vector<float> q;
  for (const double element : inputs.q) q.push_back(narrow(type, element));
  std::vector<float> logits;
  for (const Range& keys : inputs.keys) {
    for (index_t j = keys.begin; j < keys.end; ++j) {
      logits.push_back(narrow(type, naive_dot(type, q, inputs.key(j)) * scale));
    }
  }
  if (logits.empty()) return result;
  // A NaN among the logits makes the sum NaN; the check does not take such a row as its yardstick.
  const float largest = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (float& logit : logits) {
    logit = std::exp(logit - largest);
    sum += logit;
  }
  result.lse = largest + std::log(sum);

  std::vector<float> out(result.out.size(), 0.0f);
  auto weight = logits.begin();
  for (const Range& keys : inputs.keys) {
    for (index_t j = keys.begin; j < keys.end; ++j, ++weight) {
      const float probability = narrow(type, *weight / sum);
      const std::span<const double> value = inputs.value(j);
      for (std::size_t e = 0; e < out.size(); ++e) out[e] += probability * static_cast<float>(value[e]);
    }
  }
  for (std::size_t e = 0; e < out.size(); ++e) result.out[e] = narrow(type, out[e]);
  return result;
}

}  // namespace ringattn::launch
