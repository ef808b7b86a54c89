// The gradients of the loss with respect to one key and its value, summed over the queries that see them, of
// all query heads that read the KV head. With p_i = exp(s_i - lse_i):
//
//   dv = sum_i p_i dout_i,   dk = softmax_scale * sum_i p_i (dout_i v - delta_i) q_i
//
// (Dao et al., FlashAttention, arXiv:2205.14135, appendix B.2). lse_i and delta_i = sum_e dout_ie out_ie
// stand for the row's other keys, so that a key costs no more than its own pairs.
#pragma once
#include <span>
#include <vector>

#include "src/types.h"

namespace ringattn::launch {

// One query of one head, as a key sees it.
struct SeeingQuery {
  std::span<const double> q;     // [head_dim], turned
  std::span<const double> dout;  // [head_dim_v]
  double lse = 0, delta = 0;
};

// In float64, and beside it as a naive implementation in `type` would: everything that is stored between two
// steps rounded to the type, lse and delta fp32, sums fp32 in the order of the queries.
class KeyGradient {
 public:
  // key: turned.
  KeyGradient(DType type, std::span<const double> key, std::span<const double> value, double softmax_scale);
  // A query with lse -inf sees nothing and adds nothing.
  void add(const SeeingQuery& query);

  struct Sums {
    std::vector<double> dk, dv;  // dk with respect to the turned key
  };
  Sums exact() const;
  // Still to be turned back and rounded.
  Sums naive() const;
  double dk_terms() const;  // see Seen::add
  double dv_terms() const;

 private:
  void add_exact(const SeeingQuery& query);
  void add_naive(const SeeingQuery& query);

  DType type_;
  double scale_;
  std::vector<double> key_, value_, dk_, dv_, dk_squares_, dv_squares_;
  std::vector<float> narrow_key_, narrow_value_, naive_dk_, naive_dv_;
};

}  // namespace ringattn::launch
