#include "tests/kernels/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/convert.h"
#include "kernels/cpu/cpu.h"
#include "kernels/reference/attention.h"

namespace ringattn::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::size_t product(const std::array<index_t, 4>& s) {
  return static_cast<std::size_t>(s[0] * s[1] * s[2] * s[3]);
}

}  // namespace

double rounded(double x, DType dtype) {
  const auto f = static_cast<float>(x);
  if (dtype == DType::bf16) return f32_from_bf16(bf16_from_f32(f));
  if (dtype == DType::f16) return f32_from_f16(f16_from_f32(f));
  return f;
}

Tensor::Tensor(DType type, std::array<index_t, 4> s)
    : dtype(type), shape(s), bytes(product(s) * size_of(type)) {}

double Tensor::get(std::size_t i) const {
  if (dtype == DType::f32) {
    float x = 0;
    std::memcpy(&x, &bytes[i * 4], 4);
    return x;
  }
  std::uint16_t x = 0;
  std::memcpy(&x, &bytes[i * 2], 2);
  return dtype == DType::bf16 ? f32_from_bf16(x) : f32_from_f16(x);
}

void Tensor::set(std::size_t i, double value) {
  const auto f = static_cast<float>(value);
  if (dtype == DType::f32) {
    std::memcpy(&bytes[i * 4], &f, 4);
  } else {
    const std::uint16_t x = dtype == DType::bf16 ? bf16_from_f32(f) : f16_from_f32(f);
    std::memcpy(&bytes[i * 2], &x, 2);
  }
}

std::size_t Tensor::index(index_t b, index_t row, index_t head, index_t e) const {
  return static_cast<std::size_t>(((b * shape[1] + row) * shape[2] + head) * shape[3] + e);
}

std::vector<double> Tensor::doubles() const {
  std::vector<double> x(size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = get(i);
  return x;
}

Tensor random_tensor(DType dtype, std::array<index_t, 4> shape, unsigned seed, double deviation) {
  Tensor t(dtype, shape);
  std::mt19937 generator(seed);
  // Twelve uniform numbers make a normal one, the same on every standard library.
  for (std::size_t i = 0; i < t.size(); ++i) {
    double sum = -6;
    for (int n = 0; n < 12; ++n) sum += static_cast<double>(generator()) * 0x1p-32;
    t.set(i, sum * deviation);
  }
  return t;
}

std::string text(DType dtype) { return dtype == DType::f32 ? "f32" : dtype == DType::bf16 ? "bf16" : "f16"; }

Tensor filled(DType dtype, std::array<index_t, 4> shape, double value) {
  Tensor t(dtype, shape);
  for (std::size_t i = 0; i < t.size(); ++i) t.set(i, value);
  return t;
}

Tensor key_indices(DType dtype, std::array<index_t, 4> shape) {
  Tensor t(dtype, shape);
  for (index_t b = 0; b < shape[0]; ++b)
    for (index_t j = 0; j < shape[1]; ++j)
      for (index_t h = 0; h < shape[2]; ++h) t.set(t.index(b, j, h, 0), static_cast<double>(j));
  return t;
}

Tensor generated(int t, DType dtype, std::array<index_t, 4> shape) {
  Tensor tensor(dtype, shape);
  for (std::size_t i = 0; i < tensor.size(); ++i) {
    auto z = static_cast<std::uint32_t>((i + 1 + static_cast<std::size_t>(t) * 1000003) * 2654435761u);
    z ^= z >> 16;
    z *= 2246822519u;
    z ^= z >> 13;
    tensor.set(i, (static_cast<double>(z & 127u) - 64) / 64);
  }
  return tensor;
}

bool Problem::visible(index_t i, index_t j) const {
  return std::any_of(tiles.begin(), tiles.end(), [&](const Tile& t) {
    return t.q.begin <= i && i < t.q.end && t.k.begin <= j && j < t.k.end && t.band.contains(j - i);
  });
}

Problem problem_of(HeadShape shape, DType dtype, index_t q_rows, index_t k_rows, std::vector<Tile> tiles) {
  return {.shape = shape,
          .dtype = dtype,
          .q_rows = q_rows,
          .k_rows = k_rows,
          .scale = 1 / std::sqrt(static_cast<double>(shape.head_dim)),
          .tiles = std::move(tiles),
          .q_rotation = {},
          .k_rotation = {}};
}

std::vector<Tile> full_tiles(index_t q_rows, index_t k_rows) { return {{{0, q_rows}, {0, k_rows}, {}}}; }

std::vector<Tile> causal_tiles(index_t q_rows, index_t k_rows) {
  return {{{0, q_rows}, {0, k_rows}, {.hi = k_rows - q_rows}}};
}

std::vector<Tile> window_tiles(index_t q_rows, index_t k_rows, index_t left, index_t right) {
  const index_t aligned = k_rows - q_rows;
  return {{{0, q_rows}, {0, k_rows}, {.lo = aligned - left, .hi = aligned + right}}};
}

Inputs random_inputs(const Problem& p, unsigned seed, double deviation) {
  return {random_tensor(p.dtype, p.q_shape(), seed, deviation), random_tensor(p.dtype, p.k_shape(), seed + 1),
          random_tensor(p.dtype, p.v_shape(), seed + 2)};
}

Inputs generated_inputs(const Problem& p) {
  return {generated(0, p.dtype, p.q_shape()), generated(1, p.dtype, p.k_shape()),
          generated(2, p.dtype, p.v_shape())};
}

bool same_bits(const Result& a, const Result& b) {
  return a.out.bytes == b.out.bytes && a.lse.size() == b.lse.size() &&
         (a.lse.empty() || std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0);
}

std::vector<Tile> tiles_of_keys(const std::vector<Tile>& tiles, index_t begin, index_t end) {
  std::vector<Tile> local;
  for (const Tile& t : tiles) {
    const Range k{std::max(t.k.begin, begin) - begin, std::min(t.k.end, end) - begin};
    if (!k.empty()) local.push_back({t.q, k, {t.band.lo - begin, t.band.hi - begin}});
  }
  return local;
}

Blocks blocks_of(index_t rows_a_block, index_t k_rows) {
  Blocks blocks;
  for (index_t begin = 0; begin < k_rows; begin += rows_a_block)
    blocks.push_back({begin, std::min(begin + rows_a_block, k_rows)});
  return blocks;
}

Result run(Kernel& kernel, const Problem& problem, const ConstTensorView& q, const ConstTensorView& k,
           const ConstTensorView& v, const Blocks& blocks, const Poll& poll, Ending ending) {
  const HeadShape& shape = problem.shape;
  const auto lse_size = static_cast<std::size_t>(shape.batch * shape.num_heads * problem.q_rows);
  Result result{filled(problem.dtype, problem.out_shape(), kNan), std::vector<float>(lse_size, kNan)};
  const TensorView out = result.out.view();
  const LseView lse = dense_lse(result.lse.data(), shape.batch, shape.num_heads, problem.q_rows);
  const Blocks all = blocks.empty() ? Blocks{{0, problem.k_rows}} : blocks;
  kernel.load_queries(q, problem.q_rotation);
  const auto rows = [](ConstTensorView t, const Range& range) {
    t.data = static_cast<const std::byte*>(t.data) +
             range.begin * t.stride[1] * static_cast<index_t>(size_of(t.dtype));
    t.shape[1] = range.count();
    return t;
  };
  for (const Range& keys : all) {
    Rotation rotation = problem.k_rotation;
    if (rotation.dim > 0)
      rotation.angles = [&](index_t row, std::span<float> cos, std::span<float> sin) {
        problem.k_rotation.angles(row + keys.begin, cos, sin);
      };
    const Buffer block = kernel.allocate(kernel.block_bytes(keys.count()));
    std::fill_n(block.data.get(), block.size, std::byte{0xFF});  // NaN in every dtype: all must be written
    kernel.load_block(rows(k, keys), rows(v, keys), rotation, block.bytes());
    const std::vector<Tile> tiles = tiles_of_keys(problem.tiles, keys.begin, keys.end);
    if (ending == Ending::last_block && keys == all.back())
      kernel.attend_last(tiles, block.bytes(), keys.count(), out, lse, poll);
    else
      kernel.attend(tiles, block.bytes(), keys.count(), poll);
  }
  if (ending == Ending::finish) kernel.finish(out, lse);
  return result;
}

Result run(Kernel& kernel, const Problem& problem, const Inputs& inputs, const Blocks& blocks) {
  const Inputs& in = inputs;
  return run(kernel, problem, in.q.view(), in.k.view(), in.v.view(), blocks);
}

KernelConfig config_of(const Problem& problem, const std::string& isa, int threads) {
  return {.shape = problem.shape,
          .dtype = problem.dtype,
          .softmax_scale = problem.scale,
          .q_rows = problem.q_rows,
          .threads = threads,
          .isa = isa};
}

Result run_cpu(const Problem& problem, const Inputs& inputs, const std::string& isa, const Blocks& blocks,
               int threads) {
  const auto kernel = make_cpu_kernel(config_of(problem, isa, threads));
  return run(*kernel, problem, inputs, blocks);
}

void turn(std::vector<double>& x, const Tensor& like, const Rotation& rotation, double direction) {
  const auto pairs = static_cast<std::size_t>(rotation.dim / 2);
  std::vector<float> cos(pairs), sin(pairs);
  for (index_t b = 0; b < like.shape[0] && pairs > 0; ++b)
    for (index_t i = 0; i < like.shape[1]; ++i) {
      rotation.angles(i, cos, sin);
      for (index_t h = 0; h < like.shape[2]; ++h)
        for (std::size_t p = 0; p < pairs; ++p) {
          double& x1 = x[like.index(b, i, h, 0) + (rotation.interleaved ? 2 * p : p)];
          double& x2 = x[like.index(b, i, h, 0) + (rotation.interleaved ? 2 * p + 1 : p + pairs)];
          const double a = x1, b2 = x2, c = cos[p], s = direction * double{sin[p]};
          x1 = a * c - b2 * s;
          x2 = a * s + b2 * c;
        }
    }
}

std::vector<double> turned(const Tensor& t, const Rotation& rotation) {
  std::vector<double> x = t.doubles();
  turn(x, t, rotation);
  return x;
}

namespace {

// Attention as one writes it down, every intermediate result rounded to the dtype, sums in fp32.
Answer naive(const Problem& problem, const Inputs& inputs) {
  const HeadShape& s = problem.shape;
  std::vector<double> q = turned(inputs.q, problem.q_rotation), k = turned(inputs.k, problem.k_rotation);
  for (double& x : q) x = rounded(x, problem.dtype);
  for (double& x : k) x = rounded(x, problem.dtype);
  const std::vector<double> v = inputs.v.doubles();
  Answer answer;
  answer.out.resize(product(problem.out_shape()));
  answer.lse.resize(static_cast<std::size_t>(s.batch * s.num_heads * problem.q_rows));
  std::vector<float> p(static_cast<std::size_t>(problem.k_rows));
  for (index_t b = 0; b < s.batch; ++b)
    for (index_t h = 0; h < s.num_heads; ++h)
      for (index_t i = 0; i < problem.q_rows; ++i) {
        const double* qi = &q[inputs.q.index(b, i, h, 0)];
        float maximum = -std::numeric_limits<float>::infinity(), sum = 0;
        std::vector<index_t> seen;
        for (index_t j = 0; j < problem.k_rows; ++j)
          if (problem.visible(i, j)) seen.push_back(j);
        for (const index_t j : seen) {
          const double* kj = &k[inputs.k.index(b, j, h / s.group(), 0)];
          float dot = 0;
          for (index_t e = 0; e < s.head_dim; ++e)
            dot += static_cast<float>(qi[e]) * static_cast<float>(kj[e]);
          const double score = rounded(dot * static_cast<float>(problem.scale), problem.dtype);
          p[static_cast<std::size_t>(j)] = static_cast<float>(score);
          maximum = std::max(maximum, static_cast<float>(score));
        }
        for (const index_t j : seen) {
          float& x = p[static_cast<std::size_t>(j)];
          x = std::exp(x - maximum);
          sum += x;
        }
        for (index_t e = 0; e < s.head_dim_v; ++e) {
          float o = 0;
          for (const index_t j : seen)
            o += static_cast<float>(rounded(p[static_cast<std::size_t>(j)] / sum, problem.dtype)) *
                 static_cast<float>(v[inputs.v.index(b, j, h / s.group(), e)]);
          const auto at =
              static_cast<std::size_t>(((b * problem.q_rows + i) * s.num_heads + h) * s.head_dim_v + e);
          answer.out[at] = rounded(o, problem.dtype);
        }
        answer.lse[static_cast<std::size_t>((b * s.num_heads + h) * problem.q_rows + i)] =
            maximum + std::log(sum);
      }
  return answer;
}

}  // namespace

double largest(const std::vector<double>& x) {
  double m = 0;
  for (const double e : x)
    if (std::isfinite(e)) m = std::max(m, std::fabs(e));
  return m;
}

double largest_error(const std::vector<double>& x, const std::vector<double>& truth) {
  double m = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(truth[i]) && std::isfinite(x[i])) m = std::max(m, std::fabs(x[i] - truth[i]));
  return m;
}

void expect_close(const char* what, const std::vector<double>& ours, const std::vector<double>& truth,
                  double bound) {
  ASSERT_EQ(ours.size(), truth.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::isnan(truth[i])) {
      ASSERT_TRUE(std::isnan(ours[i])) << what << "[" << i << "] is " << ours[i] << ", NaN expected";
    } else if (std::isinf(truth[i])) {
      ASSERT_EQ(ours[i], truth[i]) << what << "[" << i << "]";
    } else {
      ASSERT_NEAR(ours[i], truth[i], bound) << what << "[" << i << "]";
    }
  }
}

Answer oracle(const Problem& problem, const Inputs& inputs) {
  ReferenceResult result = reference_attention(
      problem.shape, problem.q_rows, problem.k_rows, problem.scale,
      [&](index_t i, index_t j) { return problem.visible(i, j); }, turned(inputs.q, problem.q_rotation),
      turned(inputs.k, problem.k_rotation), inputs.v.doubles());
  return {std::move(result.out), std::move(result.lse)};
}

void expect_accurate(const Result& result, const Problem& problem, const Inputs& inputs) {
  const Answer truth = oracle(problem, inputs), simple = naive(problem, inputs);
  // Floors, since a naive result may be right by luck: 2^-22 is 2 units of fp32; a 16-bit result has its own
  // rounding, half a unit, whatever the arithmetic; and a score of size s (about the lse) carries an error of
  // s units of fp32 in any order of summing, which is a relative error of its weight.
  const double unit = problem.dtype == DType::f32 ? 0x1p-22 : problem.dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double score = largest(truth.lse);
  const double out_floor = (unit + 0x1p-23 * score) * largest(truth.out);
  const double out_bound = 2 * largest_error(simple.out, truth.out) + out_floor;
  const double lse_bound = 2 * largest_error(simple.lse, truth.lse) + 0x1p-22 * std::max(1.0, score);
  expect_close("out", result.out.doubles(), truth.out, out_bound);
  expect_close("lse", {result.lse.begin(), result.lse.end()}, truth.lse, lse_bound);
}

Rotation test_rotation(index_t dim, bool interleaved, index_t first_position, double base) {
  return {.dim = dim,
          .interleaved = interleaved,
          .angles = [=](index_t row, std::span<float> cos, std::span<float> sin) {
            for (std::size_t p = 0; p < cos.size(); ++p) {
              const double angle = static_cast<double>(first_position + row) *
                                   std::pow(base, -2.0 * static_cast<double>(p) / static_cast<double>(dim));
              cos[p] = static_cast<float>(std::cos(angle));
              sin[p] = static_cast<float>(std::sin(angle));
            }
          }};
}

}  // namespace ringattn::test
