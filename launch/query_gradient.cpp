#include "launch/query_gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "launch/gradient_terms.h"
#include "launch/naive_arithmetic.h"

namespace ringattn::launch {
namespace {

template <class Body>
void for_each_key(const RowInputs& row, Body&& body) {
  std::size_t n = 0;
  for (const Range& keys : row.keys) {
    for (index_t j = keys.begin; j < keys.end; ++j) body(n++, j);
  }
}

std::size_t key_count(const RowInputs& row) {
  index_t count = 0;
  for (const Range& keys : row.keys) count += keys.count();
  return static_cast<std::size_t>(count);
}

std::vector<float> narrowed(DType type, std::span<const double> values) {
  std::vector<float> result;
  for (const double value : values) result.push_back(narrow(type, value));
  return result;
}

}  // namespace

QueryGradient exact_query_gradient(const RowInputs& row, std::span<const double> dout) {
  QueryGradient result{.dq = std::vector<double>(row.q.size(), 0.0)};
  std::vector<double> score(key_count(row)), dp(score.size());
  for_each_key(row, [&](std::size_t n, index_t j) {
    score[n] = row.softmax_scale * sum_of_products(row.q, row.key(j)).sum;
    dp[n] = sum_of_products(dout, row.value(j)).sum;
  });
  double largest = -std::numeric_limits<double>::infinity(), sum = 0, delta = 0;
  for (const double s : score) largest = std::max(largest, s);
  if (std::isinf(largest) && largest < 0 &&
      std::ranges::none_of(score, [](double s) { return std::isnan(s); }))
    return result;
  for (double& s : score) {
    s = std::exp(s - largest);
    sum += s;
  }
  for (std::size_t n = 0; n < score.size(); ++n) {
    score[n] /= sum;
    delta += score[n] * dp[n];
  }
  std::vector<double> squares(row.q.size(), 0.0);
  for_each_key(row, [&](std::size_t n, index_t j) {
    const std::span<const double> k = row.key(j);
    const double ds = row.softmax_scale * score[n] * (dp[n] - delta);
    const double size =
        row.softmax_scale * score[n] * (sum_of_products(dout, row.value(j)).magnitude + std::abs(delta));
    for (std::size_t e = 0; e < k.size(); ++e) {
      result.dq[e] += ds * k[e];
      squares[e] += size * k[e] * size * k[e];
    }
  });
  result.terms = std::sqrt(*std::ranges::max_element(squares));
  return result;
}

std::vector<double> naive_query_gradient(DType type, const RowInputs& row, std::span<const double> dout) {
  const auto scale = static_cast<float>(row.softmax_scale);
  const std::vector<float> q = narrowed(type, row.q), dy = narrowed(type, dout);
  std::vector<float> p(key_count(row)), dp(p.size());
  for_each_key(row, [&](std::size_t n, index_t j) {
    p[n] = narrow(type, naive_dot(type, q, row.key(j)) * scale);
    dp[n] = narrow(type, naive_dot(type, dy, row.value(j)));
  });
  std::vector<double> dq(q.size(), 0.0);
  if (p.empty()) return dq;
  const float largest = *std::max_element(p.begin(), p.end());
  float sum = 0, delta = 0;
  for (float& weight : p) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  for (std::size_t n = 0; n < p.size(); ++n) {
    p[n] = narrow(type, p[n] / sum);
    delta += p[n] * dp[n];
  }
  std::vector<float> total(q.size(), 0.0f);
  for_each_key(row, [&](std::size_t n, index_t j) {
    const float ds = narrow(type, p[n] * (dp[n] - delta));
    const std::span<const double> k = row.key(j);
    for (std::size_t e = 0; e < total.size(); ++e) total[e] += ds * narrow(type, k[e]);
  });
  for (std::size_t e = 0; e < dq.size(); ++e) dq[e] = total[e] * scale;
  return dq;
}

}  // namespace ringattn::launch
