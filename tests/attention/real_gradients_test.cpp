// Gradients of a real layer (tests/data/smollm2_layer10): its keys differ in length by far more than random
// ones, and a few of them hold nearly all the weight.
#include <gtest/gtest.h>

#include <iostream>

#include "launch/files/tensor_file.h"
#include "tests/files/real_input.h"
#include "tests/support/gradient_case.h"
#include "tests/support/mask_formula.h"
#include "tests/support/narrow.h"

namespace ringattn::test {
namespace {

// Some heads of one tensor of the real input; f16 is exact in f32.
Tensor real_heads(const std::string& name, index_t heads, Range taken) {
  const RealInput real{RINGATTN_TEST_DATA "/smollm2_layer10"};
  const Segment all{0, RealInput::kTokens, 1};
  std::vector<std::byte> bytes(static_cast<std::size_t>(RealInput::kTokens * heads * RealInput::kHeadDim) *
                               2);
  TensorFile::open(real.spec(name), DType::f16).read(std::span(&all, 1), bytes);
  Tensor x({1, RealInput::kTokens, taken.count(), RealInput::kHeadDim});
  for (index_t row = 0; row < RealInput::kTokens; ++row)
    for (index_t h = taken.begin; h < taken.end; ++h)
      for (index_t d = 0; d < RealInput::kHeadDim; ++d)
        x.at(0, row, h - taken.begin, d) = load(
            &bytes[static_cast<std::size_t>((row * heads + h) * RealInput::kHeadDim + d) * 2], DType::f16);
  return x;
}

// One KV head with the three query heads that read it; dout is random.
class RealGradients : public testing::TestWithParam<int> {};

TEST_P(RealGradients, are_within_three_times_the_naive_error) {
  const index_t kv = GetParam(), group = RealInput::kHeads / RealInput::kHeadsKv;
  const MaskCase mask = causal_case(RealInput::kTokens, RealInput::kTokens);
  const Problem problem{.shape = {.num_heads = group, .num_heads_kv = 1, .head_dim = RealInput::kHeadDim},
                        .mask = mask.mask,
                        .rope = {.pairing = Rope::Pairing::interleaved, .base = RealInput::kRopeBase}};
  Inputs in = random_inputs(problem, 23);
  in.q = real_heads("q", RealInput::kHeads, {kv * group, kv * group + group});
  in.k = real_heads("k", RealInput::kHeadsKv, {kv, kv + 1});
  in.v = real_heads("v", RealInput::kHeadsKv, {kv, kv + 1});
  const GradientAnswer exact = oracle_gradients(problem, in, mask.visible);
  const GradientAnswer naive = naive_gradients(problem, in, mask.visible);
  for (const int ranks : {1, 2, 3, 5}) {
    const GradientAnswer got = run_threads_gradients(problem, LayoutKind::zigzag, ranks, in);
    struct Compared {
      const char* name;
      const Tensor &mine, &simple, &right;
    };
    for (const Compared& c :
         {Compared{"dq", got.dq, naive.dq, exact.dq}, Compared{"dk", got.dk, naive.dk, exact.dk},
          Compared{"dv", got.dv, naive.dv, exact.dv}}) {
      const double error = max_error(c.mine.data, c.right.data),
                   allowed = 3 * max_error(c.simple.data, c.right.data);
      EXPECT_LE(error, allowed) << c.name << ", " << ranks << " ranks";
      std::cout << c.name << " of KV head " << kv << ", " << ranks << " ranks: error " << error << ", "
                << 3 * error / allowed << " of the naive one, largest element " << max_magnitude(c.right.data)
                << '\n';
    }
  }
}
INSTANTIATE_TEST_SUITE_P(KvHeads, RealGradients, testing::Range(0, 3));

}  // namespace
}  // namespace ringattn::test
