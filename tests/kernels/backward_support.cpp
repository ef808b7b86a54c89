#include "tests/kernels/backward_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu.h"

namespace ringattn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

ConstTensorView rows_of(const Tensor& tensor, const Range& rows) {
  ConstTensorView view = tensor.view();
  view.data =
      tensor.bytes.data() + static_cast<std::size_t>(rows.begin * view.stride[1]) * size_of(view.dtype);
  view.shape[1] = rows.count();
  return view;
}
TensorView rows_of(Tensor& tensor, const Range& rows) {
  const ConstTensorView view = rows_of(std::as_const(tensor), rows);
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.stride};
}

Rotation from_row(const Rotation& rotation, index_t first) {
  Rotation shifted = rotation;
  if (rotation.dim > 0)
    shifted.angles = [&rotation, first](index_t row, std::span<float> cos, std::span<float> sin) {
      rotation.angles(row + first, cos, sin);
    };
  return shifted;
}

void round_all(std::vector<double>& x, DType dtype) {
  for (double& e : x) e = rounded(e, dtype);
}

// Gradients, and the sums of the absolute values of what is added up to them.
struct Naive {
  std::vector<double> dq, dk, dv;
  double dq_size = 0, dk_size = 0, dv_size = 0;
};

// Backward as one writes it down with the probabilities stored: every matrix rounded to the dtype, sums in
// fp32.
Naive naive_gradients(const Problem& problem, const BackwardInputs& in) {
  const HeadShape& s = problem.shape;
  const DType dtype = problem.dtype;
  std::vector<double> q = turned(in.q, problem.q_rotation), k = turned(in.k, problem.k_rotation);
  round_all(q, dtype);
  round_all(k, dtype);
  const std::vector<double> v = in.v.doubles(), dout = in.dout.doubles();
  std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());
  std::vector<double> dq_size(q.size()), dk_size(k.size()), dv_size(v.size());
  const auto dot = [](const double* a, const double* b, index_t n) {
    float sum = 0;
    for (index_t e = 0; e < n; ++e) sum += static_cast<float>(a[e]) * static_cast<float>(b[e]);
    return sum;
  };
  const auto add = [](std::vector<float>& to, std::vector<double>& size, std::size_t at, double weight,
                      const double* x, index_t n, double weight_size) {
    for (std::size_t e = 0; e < static_cast<std::size_t>(n); ++e) {
      to[at + e] += static_cast<float>(weight) * static_cast<float>(x[e]);
      size[at + e] += std::fabs(weight_size * x[e]);
    }
  };
  const auto scale = static_cast<float>(problem.scale);
  for (index_t b = 0; b < s.batch; ++b)
    for (index_t h = 0; h < s.num_heads; ++h)
      for (index_t i = 0; i < problem.q_rows; ++i) {
        const std::size_t qi = in.q.index(b, i, h, 0), oi = in.dout.index(b, i, h, 0);
        std::vector<index_t> seen;
        std::vector<double> p, dp;
        float maximum = -std::numeric_limits<float>::infinity(), sum = 0, delta = 0;
        for (index_t j = 0; j < problem.k_rows; ++j) {
          if (!problem.visible(i, j)) continue;
          seen.push_back(j);
          p.push_back(
              rounded(dot(&q[qi], &k[in.k.index(b, j, h / s.group(), 0)], s.head_dim) * scale, dtype));
          dp.push_back(rounded(dot(&dout[oi], &v[in.v.index(b, j, h / s.group(), 0)], s.head_dim_v), dtype));
          maximum = std::max(maximum, static_cast<float>(p.back()));
        }
        for (double& x : p) sum += static_cast<float>(x = std::exp(static_cast<float>(x) - maximum));
        for (std::size_t n = 0; n < p.size(); ++n) {
          p[n] = rounded(static_cast<float>(p[n]) / sum, dtype);
          delta += static_cast<float>(p[n] * dp[n]);
        }
        for (std::size_t n = 0; n < p.size(); ++n) {
          const std::size_t kj = in.k.index(b, seen[n], h / s.group(), 0),
                            vj = in.v.index(b, seen[n], h / s.group(), 0);
          const double ds = rounded(p[n] * (dp[n] - delta), dtype);
          const double ds_size = p[n] * (std::fabs(dp[n]) + std::fabs(delta));
          add(dv, dv_size, vj, p[n], &dout[oi], s.head_dim_v, p[n]);
          add(dq, dq_size, qi, ds, &k[kj], s.head_dim, ds_size);
          add(dk, dk_size, kj, ds, &q[qi], s.head_dim, ds_size);
        }
      }
  const auto scaled = [&](const std::vector<float>& x, float factor) {
    std::vector<double> y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * factor;
    return y;
  };
  Naive result{.dq = scaled(dq, scale),
               .dk = scaled(dk, scale),
               .dv = scaled(dv, 1),
               .dq_size = largest(dq_size) * std::fabs(problem.scale),
               .dk_size = largest(dk_size) * std::fabs(problem.scale),
               .dv_size = largest(dv_size)};
  turn(result.dq, in.q, problem.q_rotation, -1);
  turn(result.dk, in.k, problem.k_rotation, -1);
  for (auto* x : {&result.dq, &result.dk, &result.dv}) round_all(*x, dtype);
  return result;
}

}  // namespace

BackwardInputs backward_inputs(const Problem& problem, const Inputs& inputs, const Tensor& dout) {
  const Answer answer = oracle(problem, inputs);
  BackwardInputs in{inputs.q, inputs.k, inputs.v, dout, Tensor(problem.dtype, problem.out_shape()), {}};
  for (std::size_t i = 0; i < answer.out.size(); ++i) in.out.set(i, answer.out[i]);
  in.lse.assign(answer.lse.begin(), answer.lse.end());
  return in;
}

BackwardInputs random_backward_inputs(const Problem& problem, unsigned seed, double deviation) {
  return backward_inputs(problem, random_inputs(problem, seed, deviation),
                         random_tensor(problem.dtype, problem.out_shape(), seed + 1000));
}

BackwardInputs reformed(const Problem& problem, const BackwardInputs& inputs) {
  return backward_inputs(problem, {inputs.q, inputs.k, inputs.v}, inputs.dout);
}

bool same_bits(const Gradients& a, const Gradients& b) {
  return a.dq.bytes == b.dq.bytes && a.dk.bytes == b.dk.bytes && a.dv.bytes == b.dv.bytes;
}

Gradients run_backward(Kernel& kernel, const Problem& problem, const BackwardInputs& in, const Blocks& blocks,
                       const Poll& poll) {
  const HeadShape& shape = problem.shape;
  kernel.reserve(Pass::backward);
  const ConstLseView lse{in.lse.data(),
                         {shape.batch, shape.num_heads, problem.q_rows},
                         {shape.num_heads * problem.q_rows, problem.q_rows, 1}};
  kernel.load_rows(in.q.view(), problem.q_rotation, in.dout.view(), in.out.view(), lse, poll);
  Gradients result{filled(problem.dtype, problem.q_shape(), kNan),
                   filled(problem.dtype, problem.k_shape(), kNan),
                   filled(problem.dtype, problem.v_shape(), kNan)};
  for (const Range& keys : blocks.empty() ? Blocks{{0, problem.k_rows}} : blocks) {
    const Rotation rotation = from_row(problem.k_rotation, keys.begin);
    const Buffer block = kernel.allocate(kernel.block_bytes(keys.count()));
    const Buffer gradients = kernel.allocate(kernel.gradient_bytes(keys.count()));
    std::fill_n(block.data.get(), block.size, std::byte{0xFF});
    std::fill_n(gradients.data.get(), gradients.size, std::byte{0xFF});  // NaN: all must be written
    kernel.load_block(rows_of(in.k, keys), rows_of(in.v, keys), rotation, block.bytes());
    kernel.attend_backward(tiles_of_keys(problem.tiles, keys.begin, keys.end), block.bytes(), keys.count(),
                           {.bytes = gradients.bytes(), .fresh = true}, poll);
    kernel.finish_gradients(gradients.bytes(), rows_of(result.dk, keys), rows_of(result.dv, keys), rotation);
  }
  kernel.finish_rows(result.dq.view(), problem.q_rotation);
  return result;
}

Gradients run_backward_cpu(const Problem& problem, const BackwardInputs& inputs, const std::string& isa,
                           const Blocks& blocks, int threads) {
  const auto kernel = make_cpu_kernel(config_of(problem, isa, threads));
  return run_backward(*kernel, problem, inputs, blocks);
}

ReferenceGradients gradient_oracle(const Problem& problem, const BackwardInputs& in) {
  ReferenceGradients result = reference_gradients(
      problem.shape, problem.q_rows, problem.k_rows, problem.scale,
      [&](index_t i, index_t j) { return problem.visible(i, j); }, turned(in.q, problem.q_rotation),
      turned(in.k, problem.k_rotation), in.v.doubles(), in.dout.doubles());
  turn(result.dq, in.q, problem.q_rotation, -1);
  turn(result.dk, in.k, problem.k_rotation, -1);
  return result;
}

void expect_accurate(const Gradients& gradients, const Problem& problem, const BackwardInputs& in) {
  const ReferenceGradients truth = gradient_oracle(problem, in);
  const Naive naive = naive_gradients(problem, in);
  // Floors, since a naive result may be right by luck. What is added up may cancel, so they refer to the sum
  // of its absolute values: 2 units of fp32, and one more for each unit of |lse|, whose rounding is in every
  // probability. A 16-bit result has its own rounding besides.
  const double unit = problem.dtype == DType::f32 ? 0 : problem.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double relative = 0x1p-22 + 0x1p-23 * largest({in.lse.begin(), in.lse.end()});
  const auto compare = [&](const char* what, const Tensor& ours, const std::vector<double>& exact,
                           const std::vector<double>& simple, double size) {
    const double bound = 3 * largest_error(simple, exact) + unit * largest(exact) + relative * size;
    expect_close(what, ours.doubles(), exact, bound);
  };
  compare("dq", gradients.dq, truth.dq, naive.dq, naive.dq_size);
  compare("dk", gradients.dk, truth.dk, naive.dk, naive.dk_size);
  compare("dv", gradients.dv, truth.dv, naive.dv, naive.dv_size);
}

}  // namespace ringattn::test
