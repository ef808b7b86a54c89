// Forward and backward of RingAttention in device memory against the float64 oracle. Kernels and loops have
// tests of their own; here it is the object that makes a ring of them.
#include <gtest/gtest.h>

#include "tests/attention/random_problem.h"
#include "tests/attention_cuda/device_ring.h"
#include "tests/simt/config.h"
#include "tests/support/gradient_case.h"
#include "tests/support/sanitized.h"

namespace ringattn::test {
namespace {

// Primes, more ranks than tokens, lengths that differ, GQA, another head_dim_v, RoPE, 16 bits, -inf rows.
std::vector<RandomProblem> problems() {
  const auto of = [](HeadShape shape, DType dtype, const MaskCase& mask, LayoutKind layout) {
    return RandomProblem{{.shape = shape, .dtype = dtype, .mask = mask.mask}, mask.visible, layout};
  };
  std::vector<RandomProblem> list{
      of({.num_heads = 6, .num_heads_kv = 2, .head_dim = 8}, DType::f32, causal_case(37, 37),
         LayoutKind::zigzag),
      of({.batch = 2, .num_heads = 1, .num_heads_kv = 1, .head_dim = 20, .head_dim_v = 5}, DType::f32,
         full_case(29, 41), LayoutKind::contiguous),
      of({.num_heads = 2, .num_heads_kv = 1, .head_dim = 16}, DType::bf16, window_case(53, 53, {12, 0}),
         LayoutKind::striped),
      of({.num_heads = 1, .num_heads_kv = 1, .head_dim = 8}, DType::f16, causal_case(3, 3),
         LayoutKind::contiguous),
      of({.num_heads = 3, .num_heads_kv = 3, .head_dim = 8}, DType::f32,
         document_case(31, 31, {0, 7, 7, 29}, {0, 7, 7, 29}, {-1, 0}), LayoutKind::zigzag),
  };
  list[0].problem.rope = {.pairing = Rope::Pairing::half, .position_offset = 131064};
  return list;
}

void expect_right(const RandomProblem& p, int ranks, const GradientAnswer& got, const Inputs& in,
                  const std::string& what) {
  const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
  const Bound bound = error_bound(p, in, exact.forward);
  const GradientBound gradients = gradient_bound(p.problem, in, p.visible, exact);
  const std::string where = what + ", " + describe(p, ranks);
  EXPECT_LE(max_error(got.forward.out.data, exact.forward.out.data), bound.out) << where;
  EXPECT_LE(max_error(got.forward.lse, exact.forward.lse), bound.lse) << where;
  EXPECT_LE(max_error(got.dq.data, exact.dq.data), gradients.dq) << where;
  EXPECT_LE(max_error(got.dk.data, exact.dk.data), gradients.dk) << where;
  EXPECT_LE(max_error(got.dv.data, exact.dv.data), gradients.dv) << where;
}

class DeviceRing : public testing::TestWithParam<int> {};

TEST_P(DeviceRing, is_right_over_every_transport) {
  const int ranks = GetParam();
  unsigned seed = 0;
  for (const RandomProblem& p : problems()) {
    const Inputs in = random_inputs(p.problem, ++seed);
    std::size_t turn = seed;
    for (const Transport& transport : transports()) {
      if (left_out(turn++, 4)) continue;
      // What the transports do with many ranks is looked at in tests/comm_cuda; here one of two is enough.
      if (ranks > 3 && (transport.devices == Devices::shared) != (seed % 2 == 0)) continue;
      simt::config().seed = seed;
      expect_right(p, ranks, run_device_ranks(transport, ranks, p.problem, p.layout, in), in, transport.name);
    }
  }
}

TEST_P(DeviceRing, takes_strided_tensors_and_leaves_their_gaps_alone) {
  const RandomProblem p = problems()[0];
  const Inputs in = random_inputs(p.problem, 11);
  const GradientAnswer dense = run_device_ranks(transports()[0], GetParam(), p.problem, p.layout, in);
  const GradientAnswer strided = run_device_ranks(transports()[0], GetParam(), p.problem, p.layout, in, 3);
  EXPECT_TRUE(same_bits(dense.forward.out.data, strided.forward.out.data));
  EXPECT_TRUE(same_gradients(dense, strided));
}
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceRing, testing::Range(1, 6));

TEST(DeviceRingModes, have_the_same_bits_whatever_the_order_of_the_streams) {
  const RandomProblem p = problems()[0];
  const Inputs in = random_inputs(p.problem, 12);
  const GradientAnswer first = run_device_ranks(transports()[0], 3, p.problem, p.layout, in);
  for (const std::uint64_t seed : {2, 3, 4}) {
    simt::config().seed = seed;
    for (const Mode mode : {Mode::overlap, Mode::blocking}) {
      const GradientAnswer again = run_device_ranks(transports()[1], 3, p.problem, p.layout, in, 0, mode);
      EXPECT_TRUE(same_bits(first.forward.out.data, again.forward.out.data)) << seed << name_of(mode);
      EXPECT_TRUE(same_gradients(first, again)) << seed << name_of(mode);
    }
  }
}

// A ring of one rank sends nothing, so it needs no communicator for devices.
TEST(DeviceRingOfOne, is_right_with_a_communicator_of_the_host) {
  const RandomProblem p = problems()[1];
  const Inputs in = random_inputs(p.problem, 13);
  const Transport host{"host", {}};
  GradientAnswer answer = empty_gradients(p.problem);
  on_ranks(1, [&](RankThread& me) {
    const Sharding sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), 1);
    const RankTensors tensors(p.problem, sharding, 0, in);
    const DeviceTensors device(tensors, 0);
    RingAttention ring = device_ring(me, me.host, p.problem, p.layout);
    EXPECT_EQ(ring.backend(), "cuda/plain");
    device.forward(ring);
    device.backward(ring);
    ring.settle();
    device.download();
    tensors.collect(answer);
  });
  expect_right(p, 1, answer, in, host.name);
}

TEST(DeviceWorkspace, is_what_was_told_before) {
  const RandomProblem p = problems()[2];
  on_ranks(3, [&](RankThread& me) {
    const Sharding sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), 3);
    const RankTensors host(p.problem, sharding, me.rank, random_inputs(p.problem, 14));
    const DeviceTensors device(host, 0);
    RingAttention ring = device_ring(me, transports()[0].make(me), p.problem, p.layout);
    const auto told = [&](Pass pass) {
      return workspace(p.problem, sharding, me.rank, 1, pass, Backend::cuda);
    };
    const Workspace forward = ring.workspace();
    device.forward(ring);
    device.backward(ring);
    ring.settle();
    const Workspace both = ring.workspace();
    for (const auto& [got, right] : {std::pair(forward, told(Pass::forward)), {both, told(Pass::backward)}}) {
      EXPECT_EQ(got.kernel, right.kernel);
      EXPECT_EQ(got.slots, right.slots);
      EXPECT_EQ(got.gradients, right.gradients);
    }
  });
}

}  // namespace
}  // namespace ringattn::test
