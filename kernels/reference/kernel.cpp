#include "kernels/reference/kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/check.h"
#include "kernels/convert.h"
#include "src/error.h"

namespace ringattn {
namespace {

constexpr double kNegInf = -std::numeric_limits<double>::infinity();

double element(const ConstTensorView& t, index_t offset) {
  switch (t.dtype) {
    case DType::bf16:
      return f32_from_bf16(static_cast<const std::uint16_t*>(t.data)[offset]);
    case DType::f16:
      return f32_from_f16(static_cast<const std::uint16_t*>(t.data)[offset]);
    case DType::f32:
      break;
  }
  return static_cast<const float*>(t.data)[offset];
}

void set_element(const TensorView& t, index_t offset, double value) {
  const auto rounded = static_cast<float>(value);
  switch (t.dtype) {
    case DType::bf16:
      static_cast<std::uint16_t*>(t.data)[offset] = bf16_from_f32(rounded);
      return;
    case DType::f16:
      static_cast<std::uint16_t*>(t.data)[offset] = f16_from_f32(rounded);
      return;
    case DType::f32:
      static_cast<float*>(t.data)[offset] = rounded;
      return;
  }
}

// Turns the pairs of a row; back if `direction` is -1.
void turn(double* x, const Rotation& rotation, std::span<const float> cos, std::span<const float> sin,
          double direction = 1) {
  const std::size_t pairs = cos.size();
  for (std::size_t p = 0; p < pairs; ++p) {
    double& x1 = x[rotation.interleaved ? 2 * p : p];
    double& x2 = x[rotation.interleaved ? 2 * p + 1 : p + pairs];
    const double c = cos[p], s = direction * double{sin[p]};
    const double turned = x1 * s + x2 * c;
    x1 = x1 * c - x2 * s;
    x2 = turned;
  }
}

// The whole tensor as a dense [batch, rows, heads, dim] array, turned.
void read_rows(const ConstTensorView& t, const Rotation& rotation, double* to) {
  const auto pairs = static_cast<std::size_t>(rotation.dim / 2);
  std::vector<float> cos(pairs), sin(pairs);
  for (index_t b = 0; b < t.batch(); ++b) {
    for (index_t i = 0; i < t.rows(); ++i) {
      if (pairs > 0) rotation.angles(i, cos, sin);
      for (index_t h = 0; h < t.heads(); ++h, to += t.dim()) {
        for (index_t e = 0; e < t.dim(); ++e) to[e] = element(t, t.offset(b, i, h) + e);
        turn(to, rotation, cos, sin);
      }
    }
  }
}

// And back: `from`, as read_rows has laid it out, times `factor` and turned back.
void write_rows(const double* from, double factor, const Rotation& rotation, const TensorView& t) {
  const auto pairs = static_cast<std::size_t>(rotation.dim / 2);
  std::vector<float> cos(pairs), sin(pairs);
  std::vector<double> row(static_cast<std::size_t>(t.dim()));
  for (index_t b = 0; b < t.batch(); ++b) {
    for (index_t i = 0; i < t.rows(); ++i) {
      if (pairs > 0) rotation.angles(i, cos, sin);
      for (index_t h = 0; h < t.heads(); ++h, from += t.dim()) {
        for (std::size_t e = 0; e < row.size(); ++e) row[e] = factor * from[e];
        turn(row.data(), rotation, cos, sin, -1);
        for (std::size_t e = 0; e < row.size(); ++e)
          set_element(t, t.offset(b, i, h) + static_cast<index_t>(e), row[e]);
      }
    }
  }
}

class ReferenceKernel final : public Kernel {
 public:
  explicit ReferenceKernel(const KernelConfig& config)
      : shape_(config.shape), dtype_(config.dtype), scale_(config.softmax_scale), q_rows_(config.q_rows) {
    const auto rows = static_cast<std::size_t>(shape_.batch * q_rows_ * shape_.num_heads);
    q_.resize(rows * static_cast<std::size_t>(shape_.head_dim));
    o_.resize(rows * static_cast<std::size_t>(shape_.head_dim_v));
    maximum_.resize(rows, kNegInf);
    sum_.resize(rows);
  }

  std::string name() const override { return "reference"; }

  std::size_t block_bytes(index_t k_rows) const override {
    check_not_negative("k_rows", k_rows);
    return static_cast<std::size_t>(shape_.batch * k_rows * shape_.num_heads_kv *
                                    (shape_.head_dim + shape_.head_dim_v)) *
           sizeof(double);
  }

  std::size_t workspace_bytes() const override {
    return (q_.size() + o_.size() + maximum_.size() + sum_.size() + dq_.size() + dout_.size() + lse_.size() +
            delta_.size()) *
           sizeof(double);
  }

  void reserve(Pass pass) override {
    if (pass == Pass::forward) return;
    dq_.resize(q_.size());
    dout_.resize(o_.size());
    lse_.resize(sum_.size());
    delta_.resize(sum_.size());
    reserved_ = true;
  }

  Buffer allocate(std::size_t bytes) const override {
    if (bytes == 0) return {};
    try {
      // Elements of 64 aligned bytes, so that new[] aligns and zeroes.
      struct alignas(64) Line {
        std::byte bytes[64];
      };
      auto* lines = new Line[(bytes + 63) / 64]();
      return {.data = {lines->bytes, [lines](std::byte*) { delete[] lines; }}, .size = bytes};
    } catch (const std::bad_alloc&) {
      throw OutOfMemory("could not allocate " + std::to_string(bytes) + " bytes");
    }
  }

  void load_queries(const ConstTensorView& q, const Rotation& rotation) override {
    check_tensor("q", q, dtype_, {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim});
    check_rotation(rotation, shape_.head_dim);
    read_rows(q, rotation, q_.data());
    std::fill(o_.begin(), o_.end(), 0.0);
    std::fill(maximum_.begin(), maximum_.end(), kNegInf);
    std::fill(sum_.begin(), sum_.end(), 0.0);
  }

  void load_block(const ConstTensorView& k, const ConstTensorView& v, const Rotation& rotation,
                  std::span<std::byte> block) const override {
    check_tensor("k", k, dtype_, {shape_.batch, k.rows(), shape_.num_heads_kv, shape_.head_dim});
    check_tensor("v", v, dtype_, {shape_.batch, k.rows(), shape_.num_heads_kv, shape_.head_dim_v});
    check_rotation(rotation, shape_.head_dim);
    check_block(block, block_bytes(k.rows()), alignof(double));
    auto* to = reinterpret_cast<double*>(block.data());
    read_rows(k, rotation, to);
    read_rows(v, {}, to + shape_.batch * k.rows() * shape_.num_heads_kv * shape_.head_dim);
  }

  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    check_block(block, block_bytes(k_rows), alignof(double));
    for (const Tile& tile : tiles) check_tile(tile, q_rows_, k_rows);
    const auto* k = reinterpret_cast<const double*>(block.data());
    const double* v = k + shape_.batch * k_rows * shape_.num_heads_kv * shape_.head_dim;
    for (const Tile& tile : tiles) {
      for (index_t i = tile.q.begin; i < tile.q.end; ++i) {
        const Range keys{std::max(tile.k.begin, i + tile.band.lo),
                         std::min(tile.k.end, i + tile.band.hi + 1)};
        for (index_t b = 0; b < shape_.batch && !keys.empty(); ++b)
          for (index_t h = 0; h < shape_.num_heads; ++h) attend_row(b, i, h, keys, k, v, k_rows);
        if (poll) poll();
      }
    }
  }

  void finish(const TensorView& out, const LseView& lse) override {
    check_tensor("out", as_const(out), out.dtype,
                 {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim_v});
    check_lse(lse, {shape_.batch, shape_.num_heads, q_rows_});
    for (index_t b = 0; b < shape_.batch; ++b) {
      for (index_t i = 0; i < q_rows_; ++i) {
        for (index_t h = 0; h < shape_.num_heads; ++h) {
          const std::size_t row = row_of(b, i, h);
          const double sum = sum_[row];
          const double* o = &o_[row * static_cast<std::size_t>(shape_.head_dim_v)];
          for (index_t e = 0; e < shape_.head_dim_v; ++e)
            set_element(out, out.offset(b, i, h) + e, sum == 0 ? o[e] : o[e] / sum);
          if (!lse.data) continue;
          lse.data[b * lse.stride[0] + h * lse.stride[1] + i * lse.stride[2]] =
              static_cast<float>(sum == 0 ? kNegInf : maximum_[row] + std::log(sum));
        }
      }
    }
  }

  std::size_t gradient_bytes(index_t k_rows) const override { return block_bytes(k_rows); }

  void load_rows(const ConstTensorView& q, const Rotation& rotation, const ConstTensorView& dout,
                 const ConstTensorView& out, const ConstLseView& lse, const Poll& poll) override {
    check_reserved(reserved_, "load_rows");
    check_tensor("q", q, dtype_, {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim});
    check_tensor("dout", dout, dtype_, {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim_v});
    check_tensor("out", out, dtype_, {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim_v});
    check_lse(lse, {shape_.batch, shape_.num_heads, q_rows_});
    check_rotation(rotation, shape_.head_dim);
    read_rows(q, rotation, q_.data());
    read_rows(dout, {}, dout_.data());
    std::fill(dq_.begin(), dq_.end(), 0.0);
    for (index_t b = 0; b < shape_.batch; ++b) {
      for (index_t i = 0; i < q_rows_; ++i) {
        for (index_t h = 0; h < shape_.num_heads; ++h) {
          const std::size_t row = row_of(b, i, h);
          lse_[row] = lse.data[b * lse.stride[0] + h * lse.stride[1] + i * lse.stride[2]];
          delta_[row] = 0;
          for (index_t e = 0; e < shape_.head_dim_v; ++e)
            delta_[row] += element(dout, dout.offset(b, i, h) + e) * element(out, out.offset(b, i, h) + e);
        }
      }
      if (poll) poll();
    }
  }

  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override {
    check_reserved(reserved_, "attend_backward");
    check_block(block, block_bytes(k_rows), alignof(double));
    check_gradients(gradients.bytes, gradient_bytes(k_rows), alignof(double));
    for (const Tile& tile : tiles) check_tile(tile, q_rows_, k_rows);
    if (gradients.fresh) std::ranges::fill(gradients.bytes, std::byte{0});
    bool all_there = !gradients.arrived;
    for (const Tile& tile : tiles) {
      for (index_t i = tile.q.begin; i < tile.q.end; ++i) {
        const Range keys{std::max(tile.k.begin, i + tile.band.lo),
                         std::min(tile.k.end, i + tile.band.hi + 1)};
        if (keys.empty()) continue;
        while (!all_there) all_there = gradients.arrived() >= gradients.bytes.size();
        for (index_t b = 0; b < shape_.batch; ++b)
          for (index_t h = 0; h < shape_.num_heads; ++h)
            attend_row_backward(b, i, h, keys, reinterpret_cast<const double*>(block.data()),
                                reinterpret_cast<double*>(gradients.bytes.data()), k_rows);
        if (poll) poll();
      }
    }
  }

  void finish_rows(const TensorView& dq, const Rotation& rotation) override {
    check_reserved(reserved_, "finish_rows");
    check_tensor("dq", as_const(dq), dq.dtype, {shape_.batch, q_rows_, shape_.num_heads, shape_.head_dim});
    check_rotation(rotation, shape_.head_dim);
    write_rows(dq_.data(), scale_, rotation, dq);
  }

  void finish_gradients(std::span<const std::byte> gradients, const TensorView& dk, const TensorView& dv,
                        const Rotation& rotation) const override {
    const index_t rows = dk.rows();
    check_tensor("dk", as_const(dk), dk.dtype, {shape_.batch, rows, shape_.num_heads_kv, shape_.head_dim});
    check_tensor("dv", as_const(dv), dv.dtype, {shape_.batch, rows, shape_.num_heads_kv, shape_.head_dim_v});
    check_rotation(rotation, shape_.head_dim);
    check_gradients(gradients, gradient_bytes(rows), alignof(double));
    const auto* from = reinterpret_cast<const double*>(gradients.data());
    write_rows(from, scale_, rotation, dk);
    write_rows(from + shape_.batch * rows * shape_.num_heads_kv * shape_.head_dim, 1, {}, dv);
  }

 private:
  std::size_t row_of(index_t b, index_t i, index_t h) const {
    return static_cast<std::size_t>((b * q_rows_ + i) * shape_.num_heads + h);
  }

  // One key at a time: the online softmax in its plainest form.
  void attend_row(index_t b, index_t i, index_t h, Range keys, const double* k, const double* v,
                  index_t k_rows) {
    const std::size_t row = row_of(b, i, h);
    const double* q = &q_[row * static_cast<std::size_t>(shape_.head_dim)];
    double* o = &o_[row * static_cast<std::size_t>(shape_.head_dim_v)];
    for (index_t j = keys.begin; j < keys.end; ++j) {
      const index_t key = (b * k_rows + j) * shape_.num_heads_kv + h / shape_.group();
      double score = 0;
      for (index_t e = 0; e < shape_.head_dim; ++e) score += q[e] * k[key * shape_.head_dim + e];
      score *= scale_;
      if (score > maximum_[row]) {
        const double factor = maximum_[row] == kNegInf ? 0.0 : std::exp(maximum_[row] - score);
        sum_[row] *= factor;
        for (index_t e = 0; e < shape_.head_dim_v; ++e) o[e] *= factor;
        maximum_[row] = score;
      }
      const double p = score == kNegInf ? 0.0 : std::exp(score - maximum_[row]);
      sum_[row] += p;
      for (index_t e = 0; e < shape_.head_dim_v; ++e) o[e] += p * v[key * shape_.head_dim_v + e];
    }
  }

  // One key at a time: the formulas of kernel.h as they stand. dk lacks the factor softmax_scale, as dq does.
  void attend_row_backward(index_t b, index_t i, index_t h, Range keys, const double* k, double* dk,
                           index_t k_rows) {
    const index_t v_starts = shape_.batch * k_rows * shape_.num_heads_kv * shape_.head_dim;
    const std::size_t row = row_of(b, i, h);
    if (lse_[row] == kNegInf) return;
    const double* q = &q_[row * static_cast<std::size_t>(shape_.head_dim)];
    double* dq = &dq_[row * static_cast<std::size_t>(shape_.head_dim)];
    const double* dout = &dout_[row * static_cast<std::size_t>(shape_.head_dim_v)];
    for (index_t j = keys.begin; j < keys.end; ++j) {
      const index_t key = (b * k_rows + j) * shape_.num_heads_kv + h / shape_.group();
      const index_t at = key * shape_.head_dim, at_v = v_starts + key * shape_.head_dim_v;
      double score = 0, dp = 0;
      for (index_t e = 0; e < shape_.head_dim; ++e) score += q[e] * k[at + e];
      for (index_t e = 0; e < shape_.head_dim_v; ++e) dp += dout[e] * k[at_v + e];
      const double p = std::exp(scale_ * score - lse_[row]), ds = p * (dp - delta_[row]);
      for (index_t e = 0; e < shape_.head_dim; ++e) dq[e] += ds * k[at + e];
      for (index_t e = 0; e < shape_.head_dim; ++e) dk[at + e] += ds * q[e];
      for (index_t e = 0; e < shape_.head_dim_v; ++e) dk[at_v + e] += p * dout[e];
    }
  }

  HeadShape shape_;
  DType dtype_;
  double scale_;
  index_t q_rows_;
  std::vector<double> q_, o_, maximum_, sum_;    // [batch, q_rows, num_heads, ..]
  std::vector<double> dq_, dout_, lse_, delta_;  // likewise, for backward
  bool reserved_ = false;
};

}  // namespace

std::unique_ptr<Kernel> make_reference_kernel(const KernelConfig& config) {
  check_config(config);
  if (config.isa != "auto")
    throw UsageError("isa: '" + config.isa + "' for the reference kernel; allowed is auto");
  return std::make_unique<ReferenceKernel>(config);
}

}  // namespace ringattn
