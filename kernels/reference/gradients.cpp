#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attention.h"
#include "kernels/reference/dense.h"

namespace ringattn {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

DenseArray<double> like(const DenseArray<const double>& a, std::vector<double>& data) {
  data.assign(a.data.size(), 0.0);
  return {data, a.rows, a.heads, a.dim};
}

void add(double factor, std::span<const double> x, std::span<double> to) {
  for (std::size_t e = 0; e < to.size(); ++e) to[e] += factor * x[e];
}

// Scores of the keys that a row sees become probabilities. False if no key has any weight.
bool softmax(std::vector<double>& p) {
  double maximum = kNegInf, sum = 0;
  for (const double score : p) maximum = std::max(maximum, score);  // passes over NaN, which `sum` keeps
  for (double& x : p) {
    x = x == kNegInf ? 0.0 : std::exp(x - maximum);
    sum += x;
  }
  for (double& x : p) x /= sum;
  return sum != 0;
}

}  // namespace

ReferenceGradients reference_gradients(const HeadShape& shape, index_t seqlen_q, index_t seqlen_k,
                                       double softmax_scale,
                                       const std::function<bool(index_t i, index_t j)>& visible,
                                       std::span<const double> q, std::span<const double> k,
                                       std::span<const double> v, std::span<const double> dout) {
  const auto queries = dense_array("q", q, shape.batch, seqlen_q, shape.num_heads, shape.head_dim);
  const auto keys = dense_array("k", k, shape.batch, seqlen_k, shape.num_heads_kv, shape.head_dim);
  const auto values = dense_array("v", v, shape.batch, seqlen_k, shape.num_heads_kv, shape.head_dim_v);
  const auto outputs = dense_array("dout", dout, shape.batch, seqlen_q, shape.num_heads, shape.head_dim_v);
  ReferenceGradients result;
  const auto dq = like(queries, result.dq), dk = like(keys, result.dk), dv = like(values, result.dv);

  std::vector<index_t> seen;
  std::vector<double> p, dp;
  for (index_t b = 0; b < shape.batch; ++b) {
    for (index_t h = 0; h < shape.num_heads; ++h) {
      const index_t h_kv = h / shape.group();
      for (index_t i = 0; i < seqlen_q; ++i) {
        seen.clear(), p.clear(), dp.clear();
        for (index_t j = 0; j < seqlen_k; ++j) {
          if (!visible(i, j)) continue;
          seen.push_back(j);
          p.push_back(softmax_scale * dot(queries.row(b, i, h), keys.row(b, j, h_kv)));
          dp.push_back(dot(outputs.row(b, i, h), values.row(b, j, h_kv)));
        }
        if (!softmax(p)) continue;
        const double delta = dot(p, dp);
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double ds = p[n] * (dp[n] - delta);
          add(p[n], outputs.row(b, i, h), dv.row(b, seen[n], h_kv));
          add(softmax_scale * ds, keys.row(b, seen[n], h_kv), dq.row(b, i, h));
          add(softmax_scale * ds, queries.row(b, i, h), dk.row(b, seen[n], h_kv));
        }
      }
    }
  }
  return result;
}

}  // namespace ringattn
