#include "launch/key_gradient.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "launch/gradient_terms.h"
#include "launch/naive_arithmetic.h"

namespace ringattn::launch {
namespace {

double largest_root(const std::vector<double>& squares) {
  return squares.empty() ? 0 : std::sqrt(*std::ranges::max_element(squares));
}

}  // namespace

KeyGradient::KeyGradient(DType type, std::span<const double> key, std::span<const double> value,
                         double softmax_scale)
    : type_(type),
      scale_(softmax_scale),
      key_(key.begin(), key.end()),
      value_(value.begin(), value.end()),
      dk_(key.size(), 0.0),
      dv_(value.size(), 0.0),
      dk_squares_(key.size(), 0.0),
      dv_squares_(value.size(), 0.0),
      naive_dk_(key.size(), 0.0f),
      naive_dv_(value.size(), 0.0f) {
  for (const double element : key_) narrow_key_.push_back(narrow(type, element));
  for (const double element : value_) narrow_value_.push_back(narrow(type, element));
}

void KeyGradient::add(const SeeingQuery& query) {
  if (query.lse == -std::numeric_limits<double>::infinity()) return;
  add_exact(query);
  add_naive(query);
}

void KeyGradient::add_exact(const SeeingQuery& query) {
  const double p = std::exp(scale_ * sum_of_products(query.q, key_).sum - query.lse);
  const DotProduct dp = sum_of_products(query.dout, value_);
  const double ds = scale_ * p * (dp.sum - query.delta);
  const double size = scale_ * p * (dp.magnitude + std::abs(query.delta));
  for (std::size_t e = 0; e < dv_.size(); ++e) {
    const double term = p * query.dout[e];
    dv_[e] += term;
    dv_squares_[e] += term * term;
  }
  for (std::size_t e = 0; e < dk_.size(); ++e) {
    dk_[e] += ds * query.q[e];
    dk_squares_[e] += size * query.q[e] * size * query.q[e];
  }
}

void KeyGradient::add_naive(const SeeingQuery& query) {
  const auto scale = static_cast<float>(scale_), lse = static_cast<float>(query.lse),
             delta = static_cast<float>(query.delta);
  const float logit = narrow(type_, naive_dot(type_, narrow_key_, query.q) * scale);
  const float p = narrow(type_, std::exp(logit - lse));
  const float dp = narrow(type_, naive_dot(type_, narrow_value_, query.dout));
  const float ds = narrow(type_, p * (dp - delta));
  for (std::size_t e = 0; e < naive_dv_.size(); ++e) naive_dv_[e] += p * static_cast<float>(query.dout[e]);
  for (std::size_t e = 0; e < naive_dk_.size(); ++e) naive_dk_[e] += ds * narrow(type_, query.q[e]);
}

KeyGradient::Sums KeyGradient::exact() const { return {.dk = dk_, .dv = dv_}; }

KeyGradient::Sums KeyGradient::naive() const {
  Sums sums{.dk = {}, .dv = {naive_dv_.begin(), naive_dv_.end()}};
  for (const float element : naive_dk_) sums.dk.push_back(element * static_cast<float>(scale_));
  return sums;
}

double KeyGradient::dk_terms() const { return largest_root(dk_squares_); }
double KeyGradient::dv_terms() const { return largest_root(dv_squares_); }

}  // namespace ringattn::launch
