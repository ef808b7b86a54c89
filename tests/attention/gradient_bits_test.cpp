// What must not change a bit of a gradient: threads, overlap, repetition, other objects, strides.
#include <gtest/gtest.h>

#include <cstring>

#include "comm/self.h"
#include "comm/threads.h"
#include "tests/attention/case_check.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

Problem causal_problem(index_t length, index_t heads = 2, index_t kv_heads = 1, index_t dim = 8) {
  return {.shape = {.num_heads = heads, .num_heads_kv = kv_heads, .head_dim = dim},
          .mask = Mask::causal(length, length)};
}

TEST(GradientBits, are_the_same_for_any_threads_and_overlap) {
  const Problem problem{.shape = {.batch = 2, .num_heads = 6, .num_heads_kv = 2, .head_dim = 80},
                        .mask = Mask::causal(411, 411),
                        .rope = {.pairing = Rope::Pairing::half}};
  const Inputs in = random_inputs(problem, 7);
  for (const int ranks : {1, 3}) {
    const auto sharding = Sharding::make(LayoutKind::zigzag, 411, 411, ranks);
    const GradientAnswer first = run_threads_gradients(problem, sharding, in, {.threads = 1});
    const RingOptions others[] = {{.threads = 1},
                                  {.threads = 2},
                                  {.threads = 3},
                                  {.threads = 1, .mode = Mode::blocking},
                                  {.threads = 2, .mode = Mode::blocking}};
    for (const RingOptions& options : others)
      EXPECT_TRUE(same_gradients(first, run_threads_gradients(problem, sharding, in, options)))
          << ranks << " ranks, " << options.threads << " threads, " << name_of(options.mode);
  }
}

// Case A15: repeats on four ranks, from blocks of a few bytes to beyond a page, give the same bits and leave
// what they read alone.
TEST(GradientBits, are_the_same_in_fifty_calls) {
  for (const index_t length : {8, 64, 509}) {
    const Problem problem = causal_problem(length);
    const auto sharding = Sharding::make(LayoutKind::zigzag, length, length, 4);
    const Inputs in = random_inputs(problem, 3);
    run_thread_ranks(4, [&](const std::shared_ptr<Communicator>& comm) {
      RankTensors mine(problem, sharding, comm->rank(), in);
      RingAttention ring(comm, problem, sharding, {.threads = 1});
      mine.forward(ring);
      const auto inputs = mine.input_bytes();
      mine.backward(ring);
      const auto gradients = mine.gradient_bytes();
      for (int repeat = 1; repeat < 50; ++repeat) {
        mine.poison_gradients();
        mine.backward(ring);
        ASSERT_TRUE(mine.gradient_bytes() == gradients) << "call " << repeat;
        ASSERT_TRUE(mine.input_bytes() == inputs) << "call " << repeat;
      }
    });
  }
}

// Case A38: forward and backward of one object do not disturb each other, nor does another object. Several
// threads and groups, since what one call leaves behind lies in the scratch of a thread.
class AfterOtherCalls : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, AfterOtherCalls, testing::Values(1, 2, 3));

TEST_P(AfterOtherCalls, gradients_and_outputs_keep_their_bits) {
  const RingOptions options{.threads = GetParam()};
  const Problem a = causal_problem(601), b = causal_problem(53, 4, 2, 16);
  const auto sharding_a = Sharding::make(LayoutKind::zigzag, 601, 601, 3),
             sharding_b = Sharding::make(LayoutKind::striped, 53, 53, 3);
  const Inputs in_a = random_inputs(a, 1), in_b = random_inputs(b, 2);
  run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& comm) {
    RingAttention ring_a(comm, a, sharding_a, options), ring_b(comm, b, sharding_b, options);
    RankTensors mine_a(a, sharding_a, comm->rank(), in_a), mine_b(b, sharding_b, comm->rank(), in_b);
    mine_a.forward(ring_a);
    const auto forward = mine_a.input_bytes();
    mine_a.backward(ring_a);
    const auto gradients = mine_a.gradient_bytes();
    mine_b.forward(ring_b);
    mine_b.backward(ring_b);
    const auto other = mine_b.gradient_bytes();
    mine_a.forward(ring_a);
    EXPECT_TRUE(mine_a.input_bytes() == forward);
    mine_b.poison_gradients();
    mine_b.backward(ring_b);
    EXPECT_TRUE(mine_b.gradient_bytes() == other);
    mine_a.poison_gradients();
    mine_a.backward(ring_a);
    EXPECT_TRUE(mine_a.gradient_bytes() == gradients);
    mine_a.forward(ring_a);
    EXPECT_TRUE(mine_a.input_bytes() == forward);
  });
}

// [rows, heads, dim] floats of a dense buffer, laid out with other strides between NaN.
std::vector<float> laid_out(const std::vector<std::byte>& dense, const std::array<index_t, 4>& shape,
                            const std::array<index_t, 4>& stride) {
  std::vector<float> to(static_cast<std::size_t>(shape[1] * stride[1] + shape[2] * stride[2] + shape[3]),
                        std::nanf(""));
  const std::byte* from = dense.data();
  for (index_t r = 0; r < shape[1]; ++r)
    for (index_t h = 0; h < shape[2]; ++h)
      for (index_t d = 0; d < shape[3]; ++d, from += sizeof(float))
        std::memcpy(&to[static_cast<std::size_t>(r * stride[1] + h * stride[2] + d)], from, sizeof(float));
  return to;
}

// Elements of the view hold the dense bytes, all others what was there.
void expect_written(const std::vector<float>& wide, const std::vector<std::byte>& dense,
                    const TensorView& view, float untouched) {
  std::vector<float> expected(wide.size(), untouched);
  const std::byte* from = dense.data();
  for (index_t r = 0; r < view.shape[1]; ++r)
    for (index_t h = 0; h < view.shape[2]; ++h)
      for (index_t d = 0; d < view.shape[3]; ++d, from += sizeof(float))
        std::memcpy(&expected[static_cast<std::size_t>(r * view.stride[1] + h * view.stride[2] + d)], from,
                    sizeof(float));
  EXPECT_EQ(wide, expected);
}

// Case A17: q as a third of a fused buffer, k every second row, v with heads first; gradients into views with
// gaps; lse with a gap between heads.
TEST(GradientBits, are_the_same_through_strided_views) {
  const Problem problem = causal_problem(16, 2, 2, 8);
  const auto sharding = Sharding::make(LayoutKind::contiguous, 16, 16, 1);
  RingAttention ring(make_self_communicator(), problem, sharding, {.threads = 2});
  RankTensors dense(problem, sharding, 0, random_inputs(problem, 4));
  dense.forward(ring);
  dense.backward(ring);
  const auto inputs = dense.input_bytes(), right = dense.gradient_bytes();

  const std::array<index_t, 4> shape{1, 16, 2, 8}, fused{768, 48, 8, 1}, rows{512, 32, 8, 1},
      heads_first{256, 8, 128, 1}, gaps{640, 40, 20, 1};
  const auto q = laid_out(inputs[0], shape, fused), k = laid_out(inputs[1], shape, rows),
             v = laid_out(inputs[2], shape, heads_first), dout = laid_out(inputs[3], shape, gaps),
             out = laid_out(inputs[4], shape, fused);
  std::vector<float> lse(2 * 21, std::nanf(""));
  for (std::size_t h = 0; h < 2; ++h) std::memcpy(&lse[21 * h], &inputs[5][64 * h], 64);
  const auto view = [&](const std::vector<float>& x, const std::array<index_t, 4>& stride) {
    return ConstTensorView{x.data(), DType::f32, shape, stride};
  };
  constexpr float kUntouched = -7;
  std::vector<float> dq(16 * 48, kUntouched), dk(16 * 40, kUntouched), dv(256, kUntouched);
  const Gradients gradients{{dq.data(), DType::f32, shape, fused},
                            {dk.data(), DType::f32, shape, gaps},
                            {dv.data(), DType::f32, shape, heads_first}};
  ring.backward({view(dout, gaps),
                 view(q, fused),
                 view(k, rows),
                 view(v, heads_first),
                 view(out, fused),
                 {lse.data(), {1, 2, 16}, {42, 21, 1}}},
                gradients);
  expect_written(dq, right[0], gradients.dq, kUntouched);
  expect_written(dk, right[1], gradients.dk, kUntouched);
  expect_written(dv, right[2], gradients.dv, kUntouched);
}

// What a framework hands over for the gradient of a plain sum: one element, expanded with strides of 0.
TEST(GradientBits, are_the_same_for_an_expanded_dout) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Problem problem = causal_problem(29, 6, 2, 20);
    problem.dtype = dtype;
    Inputs in = random_inputs(problem, 5);
    std::ranges::fill(in.dout.data, 1.0);
    const auto sharding = Sharding::make(LayoutKind::zigzag, 29, 29, 3);
    run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& comm) {
      RankTensors mine(problem, sharding, comm->rank(), in);
      RingAttention ring(comm, problem, sharding, {.threads = 1});
      mine.forward(ring);
      mine.backward(ring);
      const auto right = mine.gradient_bytes();
      for (const std::array<index_t, 4>& stride : {std::array<index_t, 4>{0, 0, 0, 1}, {0, 0, 20, 1}}) {
        mine.poison_gradients();
        mine.dout.stride = stride;  // the first element, or the first row, again and again
        mine.backward(ring);
        EXPECT_TRUE(mine.gradient_bytes() == right) << name_of(dtype);
      }
    });
  }
}

}  // namespace
}  // namespace ringattn::test
