// What must not change a bit: who carries the blocks, whether transfers overlap, and in which order the
// harness lets streams, blocks and threads run.
#include <gtest/gtest.h>

#include "comm/device_ranks.h"
#include "comm/nccl.h"
#include "tests/ring_cuda/device_rings.h"
#include "tests/ring_cuda/rank_ring.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

// The bits of everything that a forward and a backward call give.
void expect_same(const GradientAnswer& got, const GradientAnswer& first) {
  EXPECT_TRUE(same_bits(got.forward.out.data, first.forward.out.data)) << "out";
  EXPECT_TRUE(same_bits(got.forward.lse, first.forward.lse)) << "lse";
  EXPECT_TRUE(same_bits(got.dq.data, first.dq.data)) << "dq";
  EXPECT_TRUE(same_bits(got.dk.data, first.dk.data)) << "dk";
  EXPECT_TRUE(same_bits(got.dv.data, first.dv.data)) << "dv";
}

void expect_same_bits_everywhere(const Problem& problem, LayoutKind layout, int ranks) {
  const auto sharding = Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), ranks);
  const Inputs in = random_inputs(problem, 7);
  for (const std::string& chapter : chapters(problem)) {
    const GradientAnswer first = run_ring_gradients(
        {.carrier = carriers()[0], .seed = 100, .chapter = chapter}, problem, sharding, in);
    EXPECT_GT(max_magnitude(first.dk.data), 0);
    std::uint64_t seed = 0;
    for (const Carrier& carrier : carriers())
      for (const Mode mode : {Mode::overlap, Mode::blocking})
        for (int repeat = 0; repeat < 2; ++repeat) {
          const DeviceRing ring{.carrier = carrier, .mode = mode, .seed = ++seed, .chapter = chapter};
          SCOPED_TRACE(text(ring));
          expect_same(run_ring_gradients(ring, problem, sharding, in), first);
        }
  }
}

TEST(CudaRingBits, AreTheSameForEveryCarrierModeAndSeed) {
  expect_same_bits_everywhere({.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 20},
                               .dtype = DType::bf16,
                               .mask = Mask::causal(43, 43),
                               .rope = {.pairing = Rope::Pairing::half}},
                              LayoutKind::zigzag, 3);
}

TEST(CudaRingBits, AreTheSameWhereHopsAreCutAndShardsAreUneven) {
  expect_same_bits_everywhere({.shape = {.head_dim = 8}, .mask = Mask::window(31, 31, {.left = 9})},
                              LayoutKind::contiguous, 4);
}

// Case A15: the slots are used again and again, and nothing is waited for between the calls.
TEST(CudaRingBits, AreTheSameInCallsThatAreQueuedAtOnce) {
  const Problem problem{.shape = {.head_dim = 8}, .mask = Mask::causal(13, 13)};
  const Inputs in = random_inputs(problem, 3);
  const auto sharding = Sharding::make(LayoutKind::zigzag, 13, 13, 4);
  for (const Carrier& carrier : carriers()) {
    const GradientAnswer first = run_ring_gradients({.carrier = carrier}, problem, sharding, in);
    SCOPED_TRACE(carrier.name);
    expect_same(run_ring_gradients({.carrier = carrier, .seed = 2, .calls = 5}, problem, sharding, in),
                first);
  }
}

// GPU extra "stream order" on case A9 test 1: whatever made K is not finished when the call is made, and
// its memory is used for other things right behind the call. 40 orders of the streams.
TEST(CudaRingStream, InputsAreReadInTheirTurn) {
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 8},
                        .mask = Mask::full(16, 16)};
  const auto all = carriers();
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const DeviceRing ring{.carrier = all[seed % all.size()], .seed = seed, .late_inputs = true};
    SCOPED_TRACE(text(ring));
    const auto got = run_ring_gradients(ring, problem, Sharding::make(LayoutKind::contiguous, 16, 16, 2),
                                        case_inputs(problem));
    const double dq[] = {-0.036385535848, 0.037200262839, -0.050485620878, 0.064220734333};
    const double dv[] = {-0.002751504923, -0.164221467178, -0.174155379687, 0.185958572592};
    for (index_t d = 0; d < 4; ++d) {
      EXPECT_NEAR(got.dq.at(0, 0, 0, d), dq[d], 2e-6);
      EXPECT_NEAR(got.dv.at(0, 15, 1, d), dv[d], 2e-6);
    }
  }
}

// GPU extra "two communicators at once", and case A38 on one stream: two objects whose calls are queued in
// turn keep each other's bits.
TEST(CudaRingStream, TwoRingsTakeTurnsInOneStream) {
  const Problem a{.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8}, .mask = Mask::causal(23, 23)};
  const Problem b{.shape = {.head_dim = 20}, .dtype = DType::f16, .mask = Mask::full(17, 11)};
  const auto sharding_a = Sharding::make(LayoutKind::striped, 23, 23, 3),
             sharding_b = Sharding::make(LayoutKind::zigzag, 17, 11, 3);
  const Inputs in_a = random_inputs(a, 1), in_b = random_inputs(b, 2);
  const DeviceRing ring{.carrier = carriers()[0]};
  const GradientAnswer alone_a = run_ring_gradients(ring, a, sharding_a, in_a),
                       alone_b = run_ring_gradients(ring, b, sharding_b, in_b);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    simt::config().seed = seed;
    GradientAnswer both_a = empty_gradients(a), both_b = empty_gradients(b);
    on_ranks(3, [&](RankThread& me) {
      const auto comm_a = make_nccl_communicator(me.host, me.stream),
                 comm_b = make_nccl_communicator(me.aside, me.stream);
      RankRing ring_a(me, *comm_a, ring, a, sharding_a, in_a), ring_b(me, *comm_b, ring, b, sharding_b, in_b);
      ring_a.forward();
      ring_b.forward();
      ring_b.backward();
      ring_a.backward();
      ring_a.forward();
      ring_b.collect(both_b);
      ring_a.collect(both_a);
    });
    SCOPED_TRACE(seed);
    expect_same(both_a, alone_a);
    expect_same(both_b, alone_b);
  }
}

}  // namespace
}  // namespace ringattn::test
