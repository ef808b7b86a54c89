#include "tests/support/ring_case.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/reference/attention.h"
#include "tests/support/narrow.h"

namespace ringattn::test {
namespace {

// The rotation of the paper in double, by the conventions: pair p of a head turns by position *
// base^(-2p/dim); `sense` -1 is the inverse, which is the transpose.
void rotate(Tensor& x, const Rope& rope, const std::function<index_t(index_t)>& position, double sense = 1) {
  if (rope.pairing == Rope::Pairing::none) return;
  const index_t dim = rope.dim != 0 ? rope.dim : x.shape[3];
  for (index_t b = 0; b < x.shape[0]; ++b)
    for (index_t row = 0; row < x.shape[1]; ++row)
      for (index_t h = 0; h < x.shape[2]; ++h)
        for (index_t p = 0; p < dim / 2; ++p) {
          const bool interleaved = rope.pairing == Rope::Pairing::interleaved;
          double& first = x.at(b, row, h, interleaved ? 2 * p : p);
          double& second = x.at(b, row, h, interleaved ? 2 * p + 1 : p + dim / 2);
          const double angle = sense * static_cast<double>(position(row) + rope.position_offset) *
                               std::pow(rope.base, -2.0 * static_cast<double>(p) / static_cast<double>(dim));
          const double x1 = first, x2 = second;
          first = x1 * std::cos(angle) - x2 * std::sin(angle);
          second = x1 * std::sin(angle) + x2 * std::cos(angle);
        }
}

double fp32(double x) { return static_cast<double>(static_cast<float>(x)); }

// One row of the textbook: scores and weights are stored in the problem's dtype, sums in fp32.
void naive_row(const Problem& p, const Inputs& in, const Visible& visible, index_t b, index_t i, index_t h,
               Answer& answer) {
  const index_t kv = h / (p.shape.num_heads / p.shape.num_heads_kv);
  std::vector<double> score(static_cast<std::size_t>(p.seqlen_k()));
  double highest = -std::numeric_limits<double>::infinity();
  bool nan = false;
  for (index_t j = 0; j < p.seqlen_k(); ++j) {
    if (!visible(i, j)) continue;
    double s = 0;
    for (index_t d = 0; d < p.shape.head_dim; ++d)
      s = fp32(s + fp32(in.q.at(b, i, h, d) * in.k.at(b, j, kv, d)));
    s = stored(s * p.scale(), p.dtype);
    score[static_cast<std::size_t>(j)] = s;
    nan = nan || std::isnan(s);
    highest = std::max(highest, s);
  }
  double& lse = answer.lse[static_cast<std::size_t>((b * p.shape.num_heads + h) * p.seqlen_q() + i)];
  lse = nan ? std::numeric_limits<double>::quiet_NaN() : highest;
  if (!nan && highest == -std::numeric_limits<double>::infinity()) return;  // sees nothing: out stays 0

  double sum = 0;
  std::vector<double> o(static_cast<std::size_t>(p.head_dim_v()));
  for (index_t j = 0; j < p.seqlen_k(); ++j) {
    if (!visible(i, j)) continue;
    const double e = std::exp(score[static_cast<std::size_t>(j)] - highest);
    sum = fp32(sum + fp32(e));
    for (std::size_t d = 0; d < o.size(); ++d)
      o[d] = fp32(o[d] + fp32(stored(e, p.dtype) * in.v.at(b, j, kv, static_cast<index_t>(d))));
  }
  for (std::size_t d = 0; d < o.size(); ++d) answer.out.at(b, i, h, static_cast<index_t>(d)) = o[d] / sum;
  if (!nan) lse = highest + std::log(sum);
}

}  // namespace

Tensor::Tensor(std::array<index_t, 4> s, double fill)
    : shape(s), data(static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]), fill) {}

double& Tensor::at(index_t b, index_t row, index_t head, index_t d) {
  return data[static_cast<std::size_t>(((b * shape[1] + row) * shape[2] + head) * shape[3] + d)];
}
double Tensor::at(index_t b, index_t row, index_t head, index_t d) const {
  return data[static_cast<std::size_t>(((b * shape[1] + row) * shape[2] + head) * shape[3] + d)];
}

std::array<index_t, 4> q_shape(const Problem& p) {
  return {p.shape.batch, p.seqlen_q(), p.shape.num_heads, p.shape.head_dim};
}
std::array<index_t, 4> k_shape(const Problem& p) {
  return {p.shape.batch, p.seqlen_k(), p.shape.num_heads_kv, p.shape.head_dim};
}
std::array<index_t, 4> v_shape(const Problem& p) {
  return {p.shape.batch, p.seqlen_k(), p.shape.num_heads_kv, p.head_dim_v()};
}
std::array<index_t, 4> out_shape(const Problem& p) {
  return {p.shape.batch, p.seqlen_q(), p.shape.num_heads, p.head_dim_v()};
}

Inputs rotated(const Problem& p, const Inputs& in) {
  Inputs turned = in;
  const index_t shift = p.seqlen_k() - p.seqlen_q();
  rotate(turned.q, p.rope, [=](index_t i) { return i + shift; });
  rotate(turned.k, p.rope, [](index_t j) { return j; });
  return turned;
}

void turn_back(const Problem& p, Tensor& dq, Tensor& dk) {
  const index_t shift = p.seqlen_k() - p.seqlen_q();
  rotate(
      dq, p.rope, [=](index_t i) { return i + shift; }, -1);
  rotate(
      dk, p.rope, [](index_t j) { return j; }, -1);
}

std::vector<std::byte> shard_of(const Tensor& x, const std::vector<index_t>& positions, DType t) {
  const index_t width = x.shape[2] * x.shape[3];
  std::vector<std::byte> bytes;
  bytes.resize(static_cast<std::size_t>(x.shape[0] * std::ssize(positions) * width) * size_of(t));
  std::byte* to = bytes.data();
  for (index_t b = 0; b < x.shape[0]; ++b)
    for (const index_t row : positions)
      for (index_t e = 0; e < width; ++e, to += size_of(t))
        store(x.data[static_cast<std::size_t>((b * x.shape[1] + row) * width + e)], t, to);
  return bytes;
}

Inputs random_inputs(const Problem& problem, unsigned seed, double spread) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, spread);
  Inputs in{Tensor(q_shape(problem)), Tensor(k_shape(problem)), Tensor(v_shape(problem)),
            Tensor(out_shape(problem))};
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.dout})
    for (double& x : t->data) x = stored(normal(generator), problem.dtype);
  return in;
}

Inputs case_inputs(const Problem& problem) {
  Inputs in{Tensor(q_shape(problem)), Tensor(k_shape(problem)), Tensor(v_shape(problem)),
            Tensor(out_shape(problem))};
  std::uint64_t stream = 0;
  for (Tensor* t : {&in.q, &in.k, &in.v, &in.dout}) {
    for (std::size_t i = 0; i < t->data.size(); ++i) {
      auto z = static_cast<std::uint32_t>((i + 1 + stream * 1000003) * 2654435761u);
      z ^= z >> 16;
      z *= 2246822519u;
      z ^= z >> 13;
      t->data[i] = (static_cast<double>(z & 127) - 64) / 64;
    }
    ++stream;
  }
  return in;
}

Inputs mean_inputs(const Problem& problem) {
  Inputs in{Tensor(q_shape(problem)), Tensor(k_shape(problem)), Tensor(v_shape(problem)),
            Tensor(out_shape(problem), 1)};
  for (index_t b = 0; b < in.v.shape[0]; ++b)
    for (index_t j = 0; j < in.v.shape[1]; ++j)
      for (index_t h = 0; h < in.v.shape[2]; ++h)
        for (index_t d = 0; d < in.v.shape[3]; ++d) in.v.at(b, j, h, d) = static_cast<double>(j);
  return in;
}

Answer oracle(const Problem& problem, const Inputs& in, const Visible& visible) {
  const Inputs turned = rotated(problem, in);
  auto [out, lse] =
      reference_attention(problem.heads(), problem.seqlen_q(), problem.seqlen_k(), problem.scale(), visible,
                          turned.q.data, turned.k.data, turned.v.data);
  Answer answer = empty_answer(problem);
  answer.out.data = std::move(out);
  answer.lse = std::move(lse);
  return answer;
}

Answer naive(const Problem& p, const Inputs& in, const Visible& visible) {
  Inputs turned = rotated(p, in);
  for (Tensor* t : {&turned.q, &turned.k})
    for (double& x : t->data) x = stored(x, p.dtype);
  Answer answer = empty_answer(p);
  std::fill(answer.out.data.begin(), answer.out.data.end(), 0.0);
  for (index_t b = 0; b < p.shape.batch; ++b)
    for (index_t i = 0; i < p.seqlen_q(); ++i)
      for (index_t h = 0; h < p.shape.num_heads; ++h) naive_row(p, turned, visible, b, i, h, answer);
  for (double& x : answer.out.data) x = stored(x, p.dtype);
  for (double& x : answer.lse) x = fp32(x);
  return answer;
}

Answer empty_answer(const Problem& p) {
  const double poison = std::numeric_limits<double>::quiet_NaN();
  return {Tensor(out_shape(p), poison),
          std::vector<double>(static_cast<std::size_t>(p.shape.batch * p.shape.num_heads * p.seqlen_q()),
                              poison)};
}

double max_error(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    const double error = std::fabs(a[i] - b[i]);
    worst = error <= std::numeric_limits<double>::max() ? std::max(worst, error)
                                                        : std::numeric_limits<double>::infinity();
  }
  return worst;
}

double max_magnitude(const std::vector<double>& a) {
  double most = 0;
  for (const double x : a)
    if (std::isfinite(x)) most = std::max(most, std::fabs(x));
  return most;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y) ||
           (std::isnan(x) && std::isnan(y));
  });
}

}  // namespace ringattn::test
