// Views of the caller's memory (case A17): any strides, nothing read or written beside the rows.
#include <cmath>
#include <limits>

#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// `t` as a view of a larger buffer that is NaN wherever the view is not. `stride` in elements.
struct Scattered {
  Tensor buffer;
  std::array<index_t, 4> shape, stride;

  Scattered(const Tensor& t, std::array<index_t, 4> s)
      : buffer(filled(t.dtype, {1, 1, 1, extent(t.shape, s)}, kNan)), shape(t.shape), stride(s) {
    each([&](std::size_t at, std::size_t dense) { buffer.set(at, t.get(dense)); });
  }

  static index_t extent(const std::array<index_t, 4>& shape, const std::array<index_t, 4>& stride) {
    index_t last = 1;
    for (std::size_t d = 0; d < 4; ++d) last += (shape[d] - 1) * stride[d];
    return last;  // ends with the last element of the last row: reading on leaves the allocation
  }

  template <class Visit>
  void each(const Visit& visit) const {
    std::size_t dense = 0;
    for (index_t b = 0; b < shape[0]; ++b)
      for (index_t i = 0; i < shape[1]; ++i)
        for (index_t h = 0; h < shape[2]; ++h)
          for (index_t e = 0; e < shape[3]; ++e)
            visit(static_cast<std::size_t>(b * stride[0] + i * stride[1] + h * stride[2] + e), dense++);
  }

  ConstTensorView view() const { return {buffer.bytes.data(), buffer.dtype, shape, stride}; }
  TensorView view() { return {buffer.bytes.data(), buffer.dtype, shape, stride}; }
};

TEST_P(EveryIsa, A17StridedViewsGiveTheSameBits) {
  for (const DType dtype : kDtypes) {
    SCOPED_TRACE(text(dtype));
    const Problem p = problem_of({2, 2, 2, 8, 8}, dtype, 16, 16, causal_tiles(16, 16));
    const Inputs in = generated_inputs(p);
    const auto kernel = make_cpu_kernel(config_of(p, GetParam()));
    const Result dense = run(*kernel, p, in);
    const index_t row = 2 * 8;
    // q: first third of a fused buffer; k: every second row; v: a [batch, heads, rows, dim] array.
    const Scattered q(in.q, {16 * 3 * row, 3 * row, 8, 1}), k(in.k, {16 * 2 * row, 2 * row, 8, 1}),
        v(in.v, {16 * row, 8, 16 * 8, 1});
    EXPECT_TRUE(same_bits(run(*kernel, p, q.view(), k.view(), v.view()), dense));
    EXPECT_TRUE(same_bits(run(*kernel, p, q.view(), k.view(), v.view(), {{0, 16}}), dense));
  }
}

// Case A35: NaN stands right behind every row, and the last row ends with its allocation.
TEST_P(EveryIsa, A35NothingPastARowIsRead) {
  for (const DType dtype : kDtypes)
    for (const index_t dim : {1, 7, 20, 63, 80, 100, 129}) {
      SCOPED_TRACE(text(dtype) + " " + std::to_string(dim));
      Problem p = problem_of({1, 3, 1, dim, dim}, dtype, 19, 21, full_tiles(19, 21));
      if (dim % 2 == 0) p.q_rotation = p.k_rotation = test_rotation(dim, false, 0);
      const Inputs in = random_inputs(p, 6);
      const auto kernel = make_cpu_kernel(config_of(p, GetParam()));
      const index_t gap = dim + 3;
      const Scattered q(in.q, {19 * 3 * gap, 3 * gap, gap, 1}), k(in.k, {21 * gap, gap, gap, 1}),
          v(in.v, {21 * gap, gap, gap, 1});
      const std::vector<std::byte> k_before = k.buffer.bytes;
      EXPECT_TRUE(same_bits(run(*kernel, p, q.view(), k.view(), v.view()), run(*kernel, p, in)));
      EXPECT_EQ(k.buffer.bytes, k_before);
    }
}

TEST_P(EveryIsa, StrideZeroRepeatsARow) {
  const Problem p = problem_of({3, 2, 1, 12, 12}, DType::f32, 5, 50, full_tiles(5, 50));
  Inputs in = random_inputs(p, 9);
  for (index_t b = 1; b < 3; ++b)  // all batches alike, every key of v alike
    for (std::size_t e = 0; e < 50 * 12; ++e) {
      in.k.set(static_cast<std::size_t>(b) * 600 + e, in.k.get(e));
      in.v.set(static_cast<std::size_t>(b) * 600 + e, in.v.get(e % 12));
    }
  for (std::size_t e = 0; e < 600; ++e) in.v.set(e, in.v.get(e % 12));
  const auto kernel = make_cpu_kernel(config_of(p, GetParam()));
  ConstTensorView k = std::as_const(in.k).view(), v = std::as_const(in.v).view();
  k.stride[0] = v.stride[0] = v.stride[1] = 0;
  EXPECT_TRUE(same_bits(run(*kernel, p, std::as_const(in.q).view(), k, v), run(*kernel, p, in)));
}

TEST_P(EveryIsa, OutputsAreWrittenWhereTheViewSaysAndNowhereElse) {
  for (const DType dtype : kDtypes) {
    SCOPED_TRACE(text(dtype));
    const Problem p = problem_of({2, 3, 1, 9, 11}, dtype, 53, 30, full_tiles(53, 30));
    const Inputs in = random_inputs(p, 2);
    const auto kernel = make_cpu_kernel(config_of(p, GetParam()));
    const Result dense = run(*kernel, p, std::as_const(in.q).view(), std::as_const(in.k).view(),
                             std::as_const(in.v).view(), {}, {}, Ending::finish);
    // out as [batch, heads, rows, dim + 2] and lse as [rows, batch, heads + 1].
    Scattered out(filled(dtype, p.out_shape(), kNan), {3 * 53 * 13, 13, 53 * 13, 1});
    std::vector<float> lse(2 * 4 * 53, -7);
    const LseView view{lse.data(), {2, 3, 53}, {4, 1, 8}};
    kernel->finish(out.view(), view);
    std::size_t written = 0;
    out.each([&](std::size_t at, std::size_t i) {
      ASSERT_EQ(out.buffer.get(at), dense.out.get(i));
      ++written;
    });
    std::size_t numbers = 0;
    for (std::size_t i = 0; i < out.buffer.size(); ++i) numbers += !std::isnan(out.buffer.get(i));
    EXPECT_EQ(numbers, written);
    for (index_t b = 0; b < 2; ++b)
      for (index_t h = 0; h < 4; ++h)
        for (index_t i = 0; i < 53; ++i) {
          const float x = lse[static_cast<std::size_t>(b * 4 + h + i * 8)];
          ASSERT_EQ(x, h == 3 ? -7 : dense.lse[static_cast<std::size_t>((b * 3 + h) * 53 + i)]);
        }
    kernel->finish(out.view(), {});  // lse is optional, and the state survives
    out.each([&](std::size_t at, std::size_t i) { ASSERT_EQ(out.buffer.get(at), dense.out.get(i)); });
  }
}

}  // namespace
}  // namespace ringattn::test
