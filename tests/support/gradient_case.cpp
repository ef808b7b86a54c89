#include "tests/support/gradient_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attention.h"
#include "tests/support/narrow.h"

namespace ringattn::test {
namespace {

double fp32(double x) { return static_cast<double>(static_cast<float>(x)); }

// Vector sums in fp32, one element of `to` after the other.
double dot(const Tensor& a, index_t row_a, index_t head_a, const Tensor& b, index_t row_b, index_t head_b,
           index_t batch) {
  double sum = 0;
  for (index_t d = 0; d < a.shape[3]; ++d)
    sum = fp32(sum + fp32(a.at(batch, row_a, head_a, d) * b.at(batch, row_b, head_b, d)));
  return sum;
}
void add_scaled(Tensor& to, index_t row_to, index_t head_to, double factor, const Tensor& x, index_t row,
                index_t head, index_t batch) {
  for (index_t d = 0; d < x.shape[3]; ++d) {
    double& element = to.at(batch, row_to, head_to, d);
    element = fp32(element + fp32(factor * x.at(batch, row, head, d)));
  }
}

// Sums of absolute values of all that is added to a gradient.
void add_sizes(Tensor& to, index_t row_to, index_t head_to, double factor, const Tensor& x, index_t row,
               index_t head, index_t batch) {
  for (index_t d = 0; d < x.shape[3]; ++d)
    to.at(batch, row_to, head_to, d) += std::fabs(factor * x.at(batch, row, head, d));
}

struct Naive {
  GradientAnswer sums, sizes;
};

// What one query row of one head contributes, for the keys that it sees.
void naive_row(const Problem& p, const Inputs& in, const std::vector<index_t>& keys, index_t b, index_t i,
               index_t h, Naive& to) {
  const index_t kv = h / (p.shape.num_heads / p.shape.num_heads_kv);
  std::vector<double> weight(keys.size()), dp(keys.size());
  double highest = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    weight[n] = stored(fp32(dot(in.q, i, h, in.k, keys[n], kv, b) * p.scale()), p.dtype);
    highest = std::max(highest, weight[n]);
  }
  for (double& w : weight) {
    w = fp32(std::exp(w - highest));
    sum = fp32(sum + w);
  }
  for (std::size_t n = 0; n < keys.size(); ++n) {
    weight[n] = stored(fp32(weight[n] / sum), p.dtype);
    dp[n] = stored(dot(in.dout, i, h, in.v, keys[n], kv, b), p.dtype);
    delta = fp32(delta + fp32(weight[n] * dp[n]));
  }
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const double ds = stored(fp32(weight[n] * fp32(dp[n] - delta)), p.dtype);
    const double ds_size = weight[n] * (std::fabs(dp[n]) + std::fabs(delta)) * p.scale();
    add_scaled(to.sums.dv, keys[n], kv, weight[n], in.dout, i, h, b);
    add_scaled(to.sums.dq, i, h, ds, in.k, keys[n], kv, b);
    add_scaled(to.sums.dk, keys[n], kv, ds, in.q, i, h, b);
    add_sizes(to.sizes.dv, keys[n], kv, weight[n], in.dout, i, h, b);
    add_sizes(to.sizes.dq, i, h, ds_size, in.k, keys[n], kv, b);
    add_sizes(to.sizes.dk, keys[n], kv, ds_size, in.q, i, h, b);
  }
}

Naive naive_both(const Problem& p, const Inputs& in, const Visible& visible) {
  const auto store = [&](Tensor& x) {
    for (double& e : x.data) e = stored(e, p.dtype);
  };
  Inputs turned = rotated(p, in);
  store(turned.q);
  store(turned.k);
  const GradientAnswer zeros{{}, Tensor(q_shape(p)), Tensor(k_shape(p)), Tensor(v_shape(p))};
  Naive result{zeros, zeros};
  std::vector<index_t> keys;
  for (index_t i = 0; i < p.seqlen_q(); ++i) {
    keys.clear();
    for (index_t j = 0; j < p.seqlen_k(); ++j)
      if (visible(i, j)) keys.push_back(j);
    for (index_t b = 0; b < p.shape.batch; ++b)
      for (index_t h = 0; h < p.shape.num_heads; ++h) naive_row(p, turned, keys, b, i, h, result);
  }
  Tensor &dq = result.sums.dq, &dk = result.sums.dk, &dv = result.sums.dv;
  for (Tensor* x : {&dq, &dk}) {
    for (double& e : x->data) e = fp32(e * p.scale());
    store(*x);
  }
  turn_back(p, dq, dk);
  for (Tensor* x : {&dq, &dk, &dv}) store(*x);
  return result;
}

}  // namespace

GradientAnswer oracle_gradients(const Problem& p, const Inputs& in, const Visible& visible) {
  const Inputs turned = rotated(p, in);
  auto [dq, dk, dv] = reference_gradients(p.heads(), p.seqlen_q(), p.seqlen_k(), p.scale(), visible,
                                          turned.q.data, turned.k.data, turned.v.data, turned.dout.data);
  GradientAnswer answer = empty_gradients(p);
  answer.forward = oracle(p, in, visible);
  answer.dq.data = std::move(dq);
  answer.dk.data = std::move(dk);
  answer.dv.data = std::move(dv);
  turn_back(p, answer.dq, answer.dk);
  return answer;
}

GradientAnswer naive_gradients(const Problem& p, const Inputs& in, const Visible& visible) {
  return naive_both(p, in, visible).sums;
}

bool same_gradients(const GradientAnswer& a, const GradientAnswer& b) {
  return same_bits(a.dq.data, b.dq.data) && same_bits(a.dk.data, b.dk.data) &&
         same_bits(a.dv.data, b.dv.data);
}

GradientBound gradient_bound(const Problem& p, const Inputs& in, const Visible& visible,
                             const GradientAnswer& exact) {
  const Naive result = naive_both(p, in, visible);
  const GradientAnswer &simple = result.sums, &sizes = result.sizes;
  const double unit = p.dtype == DType::f32 ? 0 : p.dtype == DType::bf16 ? 0x1p-9 : 0x1p-12;
  const double relative = 0x1p-22 + 0x1p-23 * max_magnitude(exact.forward.lse);
  const auto bound = [&](const Tensor& naive_one, const Tensor& right, const Tensor& size) {
    return 3 * max_error(naive_one.data, right.data) + unit * max_magnitude(right.data) +
           relative * max_magnitude(size.data);
  };
  return {bound(simple.dq, exact.dq, sizes.dq), bound(simple.dk, exact.dk, sizes.dk),
          bound(simple.dv, exact.dv, sizes.dv)};
}

}  // namespace ringattn::test
