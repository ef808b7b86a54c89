#include "tests/support/rank_tensors.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/support/narrow.h"

namespace ringattn::test {
namespace {

constexpr std::byte kPoison{0xFF};  // all ones is a NaN in every dtype

// The rows of a shard back to their places in the whole tensor.
void spread(const std::vector<std::byte>& bytes, DType t, const std::vector<index_t>& positions, Tensor& x) {
  const index_t width = x.shape[2] * x.shape[3];
  const std::byte* from = bytes.data();
  for (index_t b = 0; b < x.shape[0]; ++b)
    for (const index_t row : positions)
      for (index_t e = 0; e < width; ++e, from += size_of(t))
        x.data[static_cast<std::size_t>((b * x.shape[1] + row) * width + e)] = load(from, t);
}

}  // namespace

GradientAnswer empty_gradients(const Problem& p) {
  const double poison = std::numeric_limits<double>::quiet_NaN();
  return {empty_answer(p), Tensor(q_shape(p), poison), Tensor(k_shape(p), poison),
          Tensor(v_shape(p), poison)};
}

RankTensors::RankTensors(const Problem& p, const Sharding& sharding, int rank, const Inputs& in)
    : dtype_(p.dtype),
      heads_(p.shape.num_heads),
      q_positions_(sharding.q.positions(rank)),
      k_positions_(sharding.k.positions(rank)) {
  const auto input = [&](const Tensor& x, const std::vector<index_t>& positions, std::vector<std::byte>& to) {
    to = shard_of(x, positions, dtype_);
    return dense_view(static_cast<const void*>(to.data()), dtype_,
                      {x.shape[0], std::ssize(positions), x.shape[2], x.shape[3]});
  };
  const auto output = [&](const ConstTensorView& like, std::vector<std::byte>& to) {
    to.assign(static_cast<std::size_t>(like.shape[0] * like.stride[0]) * size_of(dtype_), kPoison);
    return dense_view(static_cast<void*>(to.data()), dtype_, like.shape);
  };
  q = input(in.q, q_positions_, q_);
  k = input(in.k, k_positions_, k_);
  v = input(in.v, k_positions_, v_);
  dout = input(in.dout, q_positions_, dout_);
  out = output(dout, out_);
  dq = output(q, dq_);
  dk = output(k, dk_);
  dv = output(v, dv_);
  const index_t rows = std::ssize(q_positions_);
  lse_.assign(static_cast<std::size_t>(p.shape.batch * heads_ * rows) * sizeof(float), kPoison);
  lse = dense_lse(reinterpret_cast<float*>(lse_.data()), p.shape.batch, heads_, rows);
}

void RankTensors::poison_gradients() {
  for (auto* bytes : {&dq_, &dk_, &dv_}) std::ranges::fill(*bytes, kPoison);
}

void RankTensors::collect(GradientAnswer& answer) const {
  spread(out_, dtype_, q_positions_, answer.forward.out);
  spread(dq_, dtype_, q_positions_, answer.dq);
  spread(dk_, dtype_, k_positions_, answer.dk);
  spread(dv_, dtype_, k_positions_, answer.dv);
  const index_t batch = answer.dq.shape[0], seqlen_q = answer.dq.shape[1];
  const std::byte* from = lse_.data();
  for (index_t row = 0; row < batch * heads_; ++row)
    for (const index_t i : q_positions_) {
      float value = 0;
      std::memcpy(&value, from, sizeof value);
      answer.forward.lse[static_cast<std::size_t>(row * seqlen_q + i)] = static_cast<double>(value);
      from += sizeof value;
    }
}

}  // namespace ringattn::test
