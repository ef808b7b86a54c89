#include "tests/real/naive.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "launch/element.h"
#include "launch/files/tensor_file.h"
#include "launch/head_rows.h"
#include "launch/naive_row.h"

namespace ringattn::test {
namespace {

constexpr auto kDim = static_cast<std::size_t>(RealInput::kHeadDim);

// A [1, rows, heads, 64] tensor of the fixture as doubles. f8 files are read as f32: the expected output is
// rounded to 24 bits, 0.0000001 of its size.
struct Tensor {
  std::vector<double> values;
  std::size_t heads = 0;

  Tensor(const std::string& spec, DType dtype, index_t rows) {
    const TensorFile file = TensorFile::open(spec, dtype);
    heads = static_cast<std::size_t>(file.shape().at(2));
    const std::size_t count = static_cast<std::size_t>(rows) * heads * kDim;
    std::vector<std::byte> bytes(count * size_of(dtype));
    const Segment all{0, rows, 1};
    file.read(std::span(&all, 1), bytes);
    for (std::size_t i = 0; i < count; ++i) {
      values.push_back(launch::load_element(dtype, bytes.data() + i * size_of(dtype)));
    }
  }
  std::span<double> row(index_t position, std::size_t head) {
    return std::span(values).subspan((static_cast<std::size_t>(position) * heads + head) * kDim, kDim);
  }
};

void turn_all(Tensor& tensor) {
  const launch::Float64Rotation rotation(
      {.pairing = Rope::Pairing::interleaved, .base = RealInput::kRopeBase}, RealInput::kHeadDim);
  for (index_t t = 0; t < RealInput::kTokens; ++t) {
    for (std::size_t h = 0; h < tensor.heads; ++h) rotation.turn(t, tensor.row(t, h));
  }
}

std::vector<float> expected_lse(const RealInput& real) {
  std::vector<float> lse(static_cast<std::size_t>(RealInput::kHeads * RealInput::kTokens));
  const Segment all_heads{0, RealInput::kHeads, 1};  // axis 1 of [1, heads, tokens]
  TensorFile::open(real.spec("expected_lse"), DType::f32)
      .read(std::span(&all_heads, 1), std::as_writable_bytes(std::span(lse)));
  return lse;
}

}  // namespace

NaiveError naive_error(const RealInput& real, DType dtype) {
  constexpr Segment kRows = RealInput::kExpectedRows;
  Tensor q(real.spec("q"), DType::f16, RealInput::kTokens), k(real.spec("k"), DType::f16, RealInput::kTokens),
      v(real.spec("v"), DType::f16, RealInput::kTokens),
      want(real.spec("expected_out"), DType::f32, kRows.count);
  const std::vector<float> want_lse = expected_lse(real);
  turn_all(q);
  turn_all(k);

  // Every row has an lse to compare with, every seventh an output; the others are spared all but one element.
  // Rounding to f16 takes its time, so in f16 only every seventh row counts: a stricter yardstick for lse.
  const index_t step = dtype == DType::f16 ? kRows.stride : 1;
  NaiveError error;
  for (std::size_t h = 0; h < q.heads; ++h) {
    const std::size_t kv = h / (q.heads / k.heads);
    for (index_t position = 0; position < RealInput::kTokens; position += step) {
      const index_t i = position / kRows.stride;
      const bool kept = position % kRows.stride == 0;
      const std::size_t elements = kept ? kDim : 1;
      const Range causal{0, position + 1};
      const launch::RowOutput row =
          launch::naive_row(dtype, {.q = q.row(position, h),
                                    .keys = std::span(&causal, 1),
                                    .key = [&](index_t j) { return k.row(j, kv); },
                                    .value = [&](index_t j) { return v.row(j, kv).first(elements); },
                                    .head_dim_v = static_cast<index_t>(elements),
                                    .softmax_scale = 1 / std::sqrt(double{RealInput::kHeadDim})});
      for (std::size_t e = 0; kept && e < kDim; ++e) {
        error.out = std::max(error.out, std::abs(row.out[e] - want.row(i, h)[e]));
      }
      const auto at = h * static_cast<std::size_t>(RealInput::kTokens) + static_cast<std::size_t>(position);
      error.lse = std::max(error.lse, std::abs(row.lse - double{want_lse[at]}));
    }
  }
  return error;
}

}  // namespace ringattn::test
