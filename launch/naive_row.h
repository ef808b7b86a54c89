// One output row computed naively in the tensors' own type. Its error is the yardstick of the check: an exact
// algorithm in the same type should not be more than twice as far from the truth.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "src/types.h"

namespace ringattn::launch {

struct RowInputs {
  std::span<const double> q;  // [head_dim], turned, not scaled
  std::span<const Range> keys;
  std::function<std::span<const double>(index_t position)> key;    // [head_dim], turned
  std::function<std::span<const double>(index_t position)> value;  // [head_dim_v]
  index_t head_dim_v = 0;
  double softmax_scale = 1;
};

struct RowOutput {
  std::vector<double> out;  // [head_dim_v]
  double lse = 0;
};

// Softmax of all logits at once, everything stored between two steps rounded to the type: turned q and k,
// logits, probabilities, output. Sums run in fp32 in the order of the keys. lse is fp32.
RowOutput naive_row(DType type, const RowInputs& inputs);

}  // namespace ringattn::launch
