#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/dense.h"

namespace ringattn {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

// exp(score - maximum) where -inf - -inf means 0.
double weight(double score, double maximum) { return score == kNegInf ? 0.0 : std::exp(score - maximum); }

}  // namespace

ReferenceResult reference_attention(const HeadShape& shape, index_t seqlen_q, index_t seqlen_k,
                                    double softmax_scale,
                                    const std::function<bool(index_t i, index_t j)>& visible,
                                    std::span<const double> q, std::span<const double> k,
                                    std::span<const double> v) {
  const auto queries = dense_array("q", q, shape.batch, seqlen_q, shape.num_heads, shape.head_dim);
  const auto keys = dense_array("k", k, shape.batch, seqlen_k, shape.num_heads_kv, shape.head_dim);
  const auto values = dense_array("v", v, shape.batch, seqlen_k, shape.num_heads_kv, shape.head_dim_v);
  ReferenceResult result;
  result.out.resize(static_cast<std::size_t>(shape.batch * seqlen_q * shape.num_heads * shape.head_dim_v));
  result.lse.resize(static_cast<std::size_t>(shape.batch * shape.num_heads * seqlen_q));
  const auto dim_v = static_cast<std::size_t>(shape.head_dim_v);

  std::vector<double> scores(static_cast<std::size_t>(seqlen_k));
  for (index_t b = 0; b < shape.batch; ++b) {
    for (index_t h = 0; h < shape.num_heads; ++h) {
      const index_t h_kv = h / shape.group();
      for (index_t i = 0; i < seqlen_q; ++i) {
        double maximum = kNegInf;
        for (index_t j = 0; j < seqlen_k; ++j) {
          if (!visible(i, j)) continue;
          const double score = softmax_scale * dot(queries.row(b, i, h), keys.row(b, j, h_kv));
          scores[static_cast<std::size_t>(j)] = score;
          maximum = std::max(maximum, score);  // keeps `maximum` if the score is NaN
        }
        double sum = 0;
        double* out = &result.out[static_cast<std::size_t>((b * seqlen_q + i) * shape.num_heads + h) * dim_v];
        for (index_t j = 0; j < seqlen_k; ++j) {
          if (!visible(i, j)) continue;
          const double p = weight(scores[static_cast<std::size_t>(j)], maximum);
          sum += p;
          for (std::size_t e = 0; e < dim_v; ++e) out[e] += p * values.row(b, j, h_kv)[e];
        }
        for (std::size_t e = 0; e < dim_v && sum != 0; ++e) out[e] /= sum;
        result.lse[static_cast<std::size_t>((b * shape.num_heads + h) * seqlen_q + i)] =
            sum == 0 ? kNegInf : maximum + std::log(sum);
      }
    }
  }
  return result;
}

ReferenceRow reference_row(
    std::span<const double> q, double softmax_scale, index_t head_dim_v, std::span<const Range> keys,
    const std::function<void(index_t j, std::span<double> k, std::span<double> v)>& fetch) {
  ReferenceRow row;
  row.out.resize(static_cast<std::size_t>(head_dim_v));
  std::vector<double> k(q.size()), v(row.out.size());
  double maximum = kNegInf, sum = 0;
  for (const Range& range : keys) {
    for (index_t j = range.begin; j < range.end; ++j) {
      fetch(j, k, v);
      const double score = softmax_scale * dot(q, k);
      if (score > maximum) {
        // Everything so far was relative to the old maximum.
        const double factor = weight(maximum, score);
        sum *= factor;
        for (double& x : row.out) x *= factor;
        maximum = score;
      }
      const double p = weight(score, maximum);
      sum += p;
      for (std::size_t e = 0; e < v.size(); ++e) row.out[e] += p * v[e];
    }
  }
  for (std::size_t e = 0; e < v.size() && sum != 0; ++e) row.out[e] /= sum;
  row.lse = sum == 0 ? kNegInf : maximum + std::log(sum);
  return row;
}

}  // namespace ringattn
