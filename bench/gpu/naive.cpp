#include "bench/gpu/naive.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ringattn::acceptance {
namespace {

std::size_t place(const std::array<index_t, 4>& shape, index_t batch, index_t row, index_t head) {
  return static_cast<std::size_t>(((batch * shape[1] + row) * shape[2] + head) * shape[3]);
}

float dot(const double* a, const double* b, index_t n) {
  float sum = 0;
  for (index_t e = 0; e < n; ++e) sum += static_cast<float>(a[e]) * static_cast<float>(b[e]);
  return sum;
}

// fp32 sums beside the sums of their terms' magnitudes.
struct Sums {
  std::vector<float> sum;
  std::vector<float> size;
  explicit Sums(std::size_t n) : sum(n), size(n) {}
  void add(std::size_t at, double weight, double weight_size, const double* x, index_t n) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(n); ++e) {
      sum[at + e] += static_cast<float>(weight) * static_cast<float>(x[e]);
      size[at + e] += static_cast<float>(std::fabs(weight_size * x[e]));
    }
  }
  std::vector<double> finished(double factor, DType dtype) const {
    std::vector<double> result(sum.size());
    for (std::size_t i = 0; i < sum.size(); ++i) result[i] = rounded(sum[i] * factor, dtype);
    return result;
  }
  double largest_size() const { return size.empty() ? 0 : *std::ranges::max_element(size); }
};

// A row of one head: its visible keys with probabilities and what becomes of them.
class Row {
 public:
  Row(const KernelCase& problem, const Inputs& in, index_t batch, index_t head, index_t i)
      : problem_(problem), in_(in), batch_(batch), head_(head), i_(i) {
    for (index_t j = 0; j < problem.k_rows; ++j)
      if (problem.visible(i, j)) keys_.push_back(j);
    const auto scale = static_cast<float>(problem.scale());
    for (const index_t j : keys_) {
      const float score = dot(q(), &in.k.values[k_at(j)], problem.shape.head_dim) * scale;
      p_.push_back(rounded(score, problem.dtype));
      maximum_ = std::max(maximum_, static_cast<float>(p_.back()));
    }
    for (double& x : p_) sum_ += static_cast<float>(x = std::exp(static_cast<float>(x) - maximum_));
    for (double& x : p_) x = rounded(static_cast<float>(x) / sum_, problem.dtype);
  }

  void write(NaiveResult& result) const {
    const index_t dim = problem_.shape.head_dim_v;
    for (index_t e = 0; e < dim; ++e) {
      float o = 0;
      for (std::size_t n = 0; n < keys_.size(); ++n)
        o += static_cast<float>(p_[n]) *
             static_cast<float>(in_.v.values[v_at(keys_[n]) + static_cast<std::size_t>(e)]);
      result.out[out_at() + static_cast<std::size_t>(e)] = rounded(o, problem_.dtype);
    }
    result.lse[static_cast<std::size_t>((batch_ * problem_.shape.num_heads + head_) * problem_.q_rows + i_)] =
        maximum_ + std::log(sum_);
  }

  void add_gradients(Sums& dq, Sums& dk, Sums& dv) const {
    const double* const dout = &in_.dout.values[out_at()];
    std::vector<double> dp;
    float delta = 0;
    for (std::size_t n = 0; n < keys_.size(); ++n) {
      dp.push_back(
          rounded(dot(dout, &in_.v.values[v_at(keys_[n])], problem_.shape.head_dim_v), problem_.dtype));
      delta += static_cast<float>(p_[n] * dp[n]);
    }
    for (std::size_t n = 0; n < keys_.size(); ++n) {
      const std::size_t k = k_at(keys_[n]);
      const double ds = rounded(p_[n] * (dp[n] - delta), problem_.dtype);
      const double size = p_[n] * (std::fabs(dp[n]) + std::fabs(delta));
      dv.add(v_at(keys_[n]), p_[n], p_[n], dout, problem_.shape.head_dim_v);
      dq.add(q_at(), ds, size, &in_.k.values[k], problem_.shape.head_dim);
      dk.add(k, ds, size, q(), problem_.shape.head_dim);
    }
  }

 private:
  index_t head_kv() const { return head_ / problem_.shape.group(); }
  std::size_t q_at() const { return place(problem_.q_shape(), batch_, i_, head_); }
  std::size_t out_at() const { return place(problem_.out_shape(), batch_, i_, head_); }
  std::size_t k_at(index_t j) const { return place(problem_.k_shape(), batch_, j, head_kv()); }
  std::size_t v_at(index_t j) const { return place(problem_.v_shape(), batch_, j, head_kv()); }
  const double* q() const { return &in_.q.values[q_at()]; }

  const KernelCase& problem_;
  const Inputs& in_;
  index_t batch_, head_, i_;
  std::vector<index_t> keys_{};
  std::vector<double> p_{};
  float maximum_ = -std::numeric_limits<float>::infinity(), sum_ = 0;
};

}  // namespace

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double e : x)
    if (std::isfinite(e)) most = std::max(most, std::fabs(e));
  return most;
}

NaiveResult naive_attention(const KernelCase& problem, const Inputs& in) {
  const HeadShape& s = problem.shape;
  NaiveResult result;
  result.out.resize(in.dout.values.size());
  result.lse.resize(static_cast<std::size_t>(s.batch * s.num_heads * problem.q_rows));
  Sums dq(in.q.values.size()), dk(in.k.values.size()), dv(in.v.values.size());
  for (index_t b = 0; b < s.batch; ++b)
    for (index_t h = 0; h < s.num_heads; ++h)
      for (index_t i = 0; i < problem.q_rows; ++i) {
        const Row row(problem, in, b, h, i);
        row.write(result);
        row.add_gradients(dq, dk, dv);
      }
  const double scale = problem.scale();
  result.dq = dq.finished(scale, problem.dtype);
  result.dk = dk.finished(scale, problem.dtype);
  result.dv = dv.finished(1, problem.dtype);
  result.dq_size = dq.largest_size() * scale;
  result.dk_size = dk.largest_size() * scale;
  result.dv_size = dv.largest_size();
  return result;
}

}  // namespace ringattn::acceptance
