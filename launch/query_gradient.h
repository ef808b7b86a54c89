// The gradient of the loss with respect to one query row, from the definition. With p_j = exp(s_j - lse) the
// row's own softmax over the keys that it sees and dp_j = dout v_j:
//
//   dq = softmax_scale * sum_j p_j (dp_j - delta) k_j,   delta = sum_j p_j dp_j
//
// (Dao et al., FlashAttention, arXiv:2205.14135, appendix B.2). A row that sees nothing, or only scores of
// -inf, has dq 0. NaN follows IEEE.
#pragma once
#include <span>
#include <vector>

#include "launch/naive_row.h"

namespace ringattn::launch {

struct QueryGradient {
  std::vector<double> dq;  // [head_dim], with respect to the turned query
  double terms = 0;        // see Seen::add; the largest of any element
};

// In float64. Holds two numbers a key.
QueryGradient exact_query_gradient(const RowInputs& row, std::span<const double> dout);

// What a naive implementation in that type gives: everything stored between two steps is rounded to the
// type: turned q and k, logits, p, dp and p (dp - delta). Sums are fp32, in the order of the keys. The result
// is left in fp32: it is still to be turned back.
std::vector<double> naive_query_gradient(DType type, const RowInputs& row, std::span<const double> dout);

}  // namespace ringattn::launch
