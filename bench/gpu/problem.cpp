#include "bench/gpu/problem.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "bench/gpu/naive.h"
#include "kernels/convert.h"
#include "kernels/reference/attention.h"

namespace ringattn::acceptance {
namespace {

Numbers random_numbers(const std::array<index_t, 4>& shape, DType dtype, unsigned seed, double deviation) {
  std::mt19937 generator(seed);
  std::vector<double> values(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
  // Twelve uniform numbers make a normal one, the same on every standard library.
  for (double& value : values) {
    double sum = -6;
    for (int n = 0; n < 12; ++n) sum += static_cast<double>(generator()) * 0x1p-32;
    value = sum * deviation;
  }
  return rounded(std::move(values), dtype);
}

double largest_error(const std::vector<double>& x, const std::vector<double>& truth) {
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(truth[i]) && std::isfinite(x[i])) most = std::max(most, std::fabs(x[i] - truth[i]));
  return most;
}

}  // namespace

double KernelCase::scale() const { return 1 / std::sqrt(static_cast<double>(shape.head_dim)); }

bool KernelCase::visible(index_t i, index_t j) const {
  return std::ranges::any_of(tiles, [&](const Tile& t) {
    return t.q.begin <= i && i < t.q.end && t.k.begin <= j && j < t.k.end && t.band.contains(j - i);
  });
}

double rounded(double x, DType dtype) {
  const auto f = static_cast<float>(x);
  if (dtype == DType::bf16) return f32_from_bf16(bf16_from_f32(f));
  if (dtype == DType::f16) return f32_from_f16(f16_from_f32(f));
  return f;
}

Numbers rounded(std::vector<double> values, DType dtype) {
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> bytes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto f = static_cast<float>(values[i]);
    values[i] = rounded(values[i], dtype);
    if (dtype == DType::f32) {
      std::memcpy(&bytes[i * width], &f, width);
    } else {
      const std::uint16_t half = dtype == DType::bf16 ? bf16_from_f32(f) : f16_from_f32(f);
      std::memcpy(&bytes[i * width], &half, width);
    }
  }
  return {.bytes = std::move(bytes), .values = std::move(values)};
}

std::vector<double> doubles_of(const std::vector<std::byte>& bytes, DType dtype) {
  const std::size_t width = size_of(dtype);
  std::vector<double> values(bytes.size() / width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float f = 0;
    std::uint16_t half = 0;
    std::memcpy(dtype == DType::f32 ? static_cast<void*>(&f) : &half, &bytes[i * width], width);
    values[i] = dtype == DType::f32 ? f : dtype == DType::bf16 ? f32_from_bf16(half) : f32_from_f16(half);
  }
  return values;
}

Inputs random_inputs(const KernelCase& p, unsigned seed) {
  return {.q = random_numbers(p.q_shape(), p.dtype, seed, p.deviation),
          .k = random_numbers(p.k_shape(), p.dtype, seed + 1, p.deviation),
          .v = random_numbers(p.v_shape(), p.dtype, seed + 2, 1),
          .dout = random_numbers(p.out_shape(), p.dtype, seed + 3, 1)};
}

Truth truth_of(const KernelCase& p, const Inputs& in) {
  const auto visible = [&](index_t i, index_t j) { return p.visible(i, j); };
  ReferenceResult forward = reference_attention(p.shape, p.q_rows, p.k_rows, p.scale(), visible, in.q.values,
                                                in.k.values, in.v.values);
  ReferenceGradients backward = reference_gradients(p.shape, p.q_rows, p.k_rows, p.scale(), visible,
                                                    in.q.values, in.k.values, in.v.values, in.dout.values);
  const NaiveResult naive = naive_attention(p, in);
  // Floors, since a naive result may be right by luck: 2^-22 is 2 units of fp32; a 16-bit result has its own
  // rounding, half a unit, whatever the arithmetic; and a score of size s (about the lse) carries an error of
  // s units of fp32 in any order of summing, which is a relative error of its weight.
  const double unit = p.dtype == DType::f32 ? 0 : p.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double score = largest(forward.lse), relative = 0x1p-22 + 0x1p-23 * score;
  const double out_unit = p.dtype == DType::f32 ? 0x1p-22 : unit;
  Truth truth;
  truth.out.bound =
      2 * largest_error(naive.out, forward.out) + (out_unit + 0x1p-23 * score) * largest(forward.out);
  truth.lse.bound = 2 * largest_error(naive.lse, forward.lse) + 0x1p-22 * std::max(1.0, score);
  const auto gradient = [&](std::vector<double>& exact, const std::vector<double>& simple, double size) {
    const double bound = 3 * largest_error(simple, exact) + unit * largest(exact) + relative * size;
    return Expected{.values = std::move(exact), .bound = bound};
  };
  truth.dq = gradient(backward.dq, naive.dq, naive.dq_size);
  truth.dk = gradient(backward.dk, naive.dk, naive.dk_size);
  truth.dv = gradient(backward.dv, naive.dv, naive.dv_size);
  truth.out.values = std::move(forward.out);
  truth.lse.values = std::move(forward.lse);
  return truth;
}

double error_over_bound(const std::vector<double>& result, const Expected& truth) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (result.size() != truth.values.size()) return kInfinity;
  double most = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const double x = result[i], want = truth.values[i];
    if (std::isnan(want) || std::isinf(want)) {
      if (std::isnan(want) ? !std::isnan(x) : x != want) return kInfinity;
    } else if (!std::isfinite(x)) {
      return kInfinity;
    } else if (x != want) {
      most = std::max(most, std::fabs(x - want) / truth.bound);
    }
  }
  return most;
}

}  // namespace ringattn::acceptance
