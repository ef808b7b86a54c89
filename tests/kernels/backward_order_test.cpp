// Bits depend neither on threads nor on when bytes arrive, no byte is touched before, and an error ends the
// call.
#include <cstring>
#include <stdexcept>
#include <thread>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/backward_support.h"
#include "tests/kernels/every_isa.h"
#include "tests/kernels/random_tiles.h"

namespace ringattn::test {
namespace {

// Several tasks in each of several heads: 5 of 256 keys at head_dim 24.
Problem problem_with(const std::vector<Tile>& tiles, index_t q_rows, index_t k_rows) {
  return problem_of({1, 4, 2, 24, 17}, DType::f32, q_rows, k_rows, tiles);
}
std::vector<std::vector<Tile>> masks(index_t q_rows, index_t k_rows) {
  return {full_tiles(q_rows, k_rows),
          causal_tiles(q_rows, k_rows),
          window_tiles(q_rows, k_rows, 300, 5),
          random_grid(q_rows, k_rows, 4),
          // Anti-causal: every task sees groups that none before it has seen.
          {{{0, q_rows}, {0, k_rows}, {.lo = 0}}}};
}

TEST_P(EveryIsa, BackwardIsTheSameForAnyNumberOfThreads) {
  for (const auto& tiles : masks(211, 1109)) {
    const Problem p = problem_with(tiles, 211, 1109);
    const BackwardInputs in = random_backward_inputs(p, 3);
    const Gradients one = run_backward_cpu(p, in, GetParam(), {}, 1);
    expect_accurate(one, p, in);
    for (const int threads : {1, 2, 3, 5})
      for (int repeat = 0; repeat < 2; ++repeat)
        EXPECT_TRUE(same_bits(run_backward_cpu(p, in, GetParam(), {}, threads), one))
            << threads << " threads";
  }
}

// The order of the tiles and a kernel's earlier work must not show either.
TEST_P(EveryIsa, BackwardForgetsWhatCameBefore) {
  const Problem p = problem_with(causal_tiles(97, 301), 97, 301);
  const BackwardInputs in = random_backward_inputs(p, 3), other = random_backward_inputs(p, 70, 3);
  const Gradients fresh = run_backward_cpu(p, in, GetParam(), {}, 2);
  const auto kernel = make_cpu_kernel(config_of(p, GetParam(), 2));
  const Inputs forward{in.q, in.k, in.v};
  const Result out = run(*kernel, p, forward);
  run_backward(*kernel, p, other, blocks_of(70, 301));
  EXPECT_TRUE(same_bits(run_backward(*kernel, p, in), fresh));
  EXPECT_TRUE(same_bits(run(*kernel, p, forward), out));  // forward goes on in the larger arena
  EXPECT_TRUE(same_bits(run_backward(*kernel, p, in), fresh));
}

// One block against two halves of the queries, as two ranks would see it: the second one's bytes carry the
// first one's sums and arrive slowly, on other instruction sets than those that began them, too.
struct Carried {
  Carried(const Problem& problem, const BackwardInputs& inputs, const std::string& isa, int threads)
      : p(problem), kernel(make_cpu_kernel(config_of(problem, isa, threads))) {
    kernel->reserve(Pass::backward);
    block = kernel->allocate(kernel->block_bytes(p.k_rows));
    sums = kernel->allocate(kernel->gradient_bytes(p.k_rows));
    kernel->load_block(inputs.k.view(), inputs.v.view(), {}, block.bytes());
    const HeadShape& s = p.shape;
    kernel->load_rows(
        inputs.q.view(), {}, inputs.dout.view(), inputs.out.view(),
        {inputs.lse.data(), {s.batch, s.num_heads, p.q_rows}, {s.num_heads * p.q_rows, p.q_rows, 1}}, {});
  }
  void attend(const std::function<std::size_t()>& arrived, const Poll& poll = {}) {
    kernel->attend_backward(p.tiles, block.bytes(), p.k_rows, {.bytes = sums.bytes(), .arrived = arrived},
                            poll);
  }

  const Problem& p;
  std::unique_ptr<Kernel> kernel;
  Buffer block, sums;
};

std::vector<std::byte> bytes_of(const Buffer& buffer) {
  return {buffer.data.get(), buffer.data.get() + buffer.size};
}

TEST_P(EveryIsa, BytesAreNotTouchedBeforeTheyArrive) {
  for (const auto& tiles : masks(203, 1109)) {
    const Problem p = problem_with(tiles, 203, 1109);
    const BackwardInputs in = random_backward_inputs(p, 5);
    Carried first(p, in, cpu_isas().front(), 1);
    first.attend({});
    const std::vector<std::byte> begun = bytes_of(first.sums);  // what comes from the previous rank

    Carried at_once(p, in, GetParam(), 1);
    std::memcpy(at_once.sums.data.get(), begun.data(), begun.size());
    at_once.attend({});
    const std::vector<std::byte> expected = bytes_of(at_once.sums);
    for (const int threads : {1, 2, 3}) {
      Carried slow(p, in, GetParam(), threads);
      std::memset(slow.sums.data.get(), 0xFF, slow.sums.size);  // NaN until it arrives
      std::size_t there = 0, chunk = 1;
      slow.attend([&] {
        const std::size_t end = std::min(there + chunk, begun.size());
        for (std::size_t i = there; i < end; ++i) EXPECT_EQ(slow.sums.data.get()[i], std::byte{0xFF}) << i;
        std::memcpy(slow.sums.data.get() + there, begun.data() + there, end - there);
        there = end;
        chunk = chunk * 3 % 9973 + 1;  // from a byte to several rows, never a whole number of them
        return there;
      });
      // What no task waited for has not arrived, and is not touched.
      for (std::size_t i = there; i < begun.size(); ++i) ASSERT_EQ(slow.sums.data.get()[i], std::byte{0xFF});
      std::memcpy(slow.sums.data.get() + there, begun.data() + there, begun.size() - there);
      EXPECT_EQ(bytes_of(slow.sums), expected) << threads << " threads";
    }
  }
}

TEST_P(EveryIsa, NothingVisibleNeedsNoBytes) {
  const Problem p = problem_with({{{0, 50}, {0, 60}, {.lo = 100}}}, 50, 60);
  const BackwardInputs in = random_backward_inputs(p, 5);
  Carried c(p, in, GetParam(), 2);
  std::memset(c.sums.data.get(), 0x5A, c.sums.size);
  const std::vector<std::byte> before = bytes_of(c.sums);
  c.attend([]() -> std::size_t { return 0; });  // they never arrive
  EXPECT_EQ(bytes_of(c.sums), before);
}

TEST_P(EveryIsa, AnErrorEndsTheWaitsOfAllThreads) {
  const Problem p = problem_with(full_tiles(203, 1109), 203, 1109);
  const BackwardInputs in = random_backward_inputs(p, 5);
  for (const int threads : {1, 2, 3}) {
    Carried c(p, in, GetParam(), threads);
    for (const int calls : {0, 3, 20}) {
      int left = calls;
      const auto count_down = [&] {
        if (left-- == 0) throw std::runtime_error("peer is gone");
      };
      // Bytes that never arrive: every thread ends up waiting.
      EXPECT_THROW(c.attend([&]() -> std::size_t {
        count_down();
        return 0;
      }),
                   std::runtime_error);
      // The caller polls once at least; more often only if it gets to work before the others are done.
      left = threads == 1 ? calls : 0;
      EXPECT_THROW(c.attend({}, count_down), std::runtime_error);
    }
  }
}

// In the thread that called, and several times.
TEST_P(EveryIsa, BackwardPollsFromTheCallingThread) {
  const Problem p = problem_with(full_tiles(203, 1109), 203, 1109);
  const BackwardInputs in = random_backward_inputs(p, 5);
  const auto caller = std::this_thread::get_id();
  for (const int threads : {1, 3}) {
    int polls = 0, asked = 0;
    Carried c(p, in, GetParam(), threads);
    const std::size_t all = c.sums.size;
    c.attend(
        [&] {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          return ++asked < 5 ? 0 : all;
        },
        [&] {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          ++polls;
        });
    EXPECT_EQ(asked, 5);
    EXPECT_GE(polls, threads == 1 ? 100 : 5);  // 100 steps: 5 tasks x 5 groups x 4 heads
  }
}

TEST(Backward, StatesWhatItHolds) {
  const Problem p = problem_with(full_tiles(203, 1109), 203, 1109);
  const KernelConfig config = config_of(p, "auto", 3);
  const auto kernel = make_cpu_kernel(config);
  EXPECT_EQ(kernel->workspace_bytes(), cpu_workspace_bytes(config));
  kernel->reserve(Pass::forward);
  EXPECT_EQ(kernel->workspace_bytes(), cpu_workspace_bytes(config));
  kernel->reserve(Pass::backward);
  EXPECT_EQ(kernel->workspace_bytes(), cpu_workspace_bytes(config, Pass::backward));
  EXPECT_GT(cpu_workspace_bytes(config, Pass::backward), cpu_workspace_bytes(config));
  kernel->reserve(Pass::forward);  // there is room for it
  EXPECT_EQ(kernel->workspace_bytes(), cpu_workspace_bytes(config, Pass::backward));
  // [1][2 KV heads][1109 -> 1112 rows][24 + (17 -> 24)] fp32
  EXPECT_EQ(kernel->gradient_bytes(1109), 2u * 1112 * 48 * 4);
  EXPECT_EQ(cpu_gradient_bytes(p.shape, 1109), kernel->gradient_bytes(1109));
  EXPECT_EQ(kernel->gradient_bytes(0), 0u);
}

}  // namespace
}  // namespace ringattn::test
