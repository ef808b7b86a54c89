// The slots of a whole ring over NCCL lie in memory that NCCL has registered: once, whatever is called and
// how often, and everything that travels lies there.
#include <gtest/gtest.h>

#include "tests/ring_cuda/device_rings.h"
#include "tests/simt/nccl.h"

namespace ringattn::test {
namespace {

// Shards of 8, 8, 7 and 7 rows, or with 3 tokens 1, 1, 1 and 0.
Problem problem_of(index_t tokens) {
  return {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8}, .mask = Mask::causal(tokens, tokens)};
}

TEST(CudaRingSlots, AreRegisteredOnceOverManyCalls) {
  for (const index_t tokens : {29, 3}) {
    const Problem problem = problem_of(tokens);
    const Inputs in = random_inputs(problem, 5);
    const auto sharding = Sharding::make(LayoutKind::contiguous, tokens, tokens, 4);
    for (const int calls : {1, 4}) {
      const simt::NcclCounts before = simt::nccl_counts();
      run_ring_gradients({.carrier = carriers()[0], .calls = calls}, problem, sharding, in);
      const simt::NcclCounts after = simt::nccl_counts();
      EXPECT_EQ(after.registrations - before.registrations, 4 * 4);  // ranks; blocks and gradients, two each
      EXPECT_EQ(after.registered, 0);
      EXPECT_GT(after.messages - before.messages, calls * 4 * 3);
      EXPECT_EQ(after.zero_copy - before.zero_copy, after.messages - before.messages);
    }
  }
}

}  // namespace
}  // namespace ringattn::test
