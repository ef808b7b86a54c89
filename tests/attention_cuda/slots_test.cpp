// Where the slots of RingAttention lie over NCCL: in memory that NCCL has registered, once for all calls; and
// in the kernel's, where NCCL refuses or nothing travels.
#include <gtest/gtest.h>

#include "comm/nccl.h"
#include "src/error.h"
#include "tests/attention_cuda/device_ring.h"
#include "tests/simt/config.h"
#include "tests/simt/nccl.h"

namespace ringattn::test {
namespace {

std::shared_ptr<DeviceCommunicator> nccl(RankThread& me) {
  return make_nccl_communicator(me.host, me.stream);
}

Problem causal(index_t tokens) {
  return {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 8}, .mask = Mask::causal(tokens, tokens)};
}

class DeviceSlots : public testing::Test {
 protected:
  ~DeviceSlots() override { EXPECT_EQ(simt::nccl_counts().registered, 0); }
  int registrations() const { return simt::nccl_counts().registrations - before_.registrations; }
  int messages() const { return simt::nccl_counts().messages - before_.messages; }
  int zero_copy() const { return simt::nccl_counts().zero_copy - before_.zero_copy; }

 private:
  simt::NcclCounts before_ = simt::nccl_counts();
};

TEST_F(DeviceSlots, are_registered_once_by_an_object_whatever_is_called) {
  const Problem problem = causal(31);
  const Inputs in = random_inputs(problem, 3);
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 31, 31, 3);
  on_ranks(3, [&](RankThread& me) {
    const RankTensors host(problem, sharding, me.rank, in);
    const DeviceTensors device(host, 0);
    RingAttention ring = device_ring(me, nccl(me), problem, LayoutKind::zigzag);
    const auto expect = [&](int each) {  // what all ranks have made by now
      me.meet();
      EXPECT_EQ(registrations(), 3 * each);
      me.meet();
    };
    expect(2);
    device.forward(ring);
    device.forward(ring);
    expect(2);
    device.backward(ring);
    expect(4);
    for (int call = 0; call < 3; ++call) {
      device.forward(ring);
      device.backward(ring);
    }
    expect(4);
    ring.settle();
    EXPECT_EQ(ring.workspace().slots,
              workspace(problem, sharding, me.rank, 1, Pass::backward, Backend::cuda).slots);
  });
  EXPECT_EQ(zero_copy(), messages());
}

TEST_F(DeviceSlots, are_the_kernels_where_nothing_travels) {
  // Two documents on two ranks: one hop. And a ring of one rank.
  const std::vector<index_t> cu{0, 8, 16};
  const Problem documents{.shape = {.num_heads = 1, .num_heads_kv = 1, .head_dim = 8},
                          .mask = Mask::documents(16, 16, cu, cu, {})};
  on_ranks(2, [&](RankThread& me) { (void)device_ring(me, nccl(me), documents, LayoutKind::contiguous); });
  on_ranks(1, [&](RankThread& me) { (void)device_ring(me, nccl(me), causal(31), LayoutKind::contiguous); });
  EXPECT_EQ(registrations(), 0);
}

// The same bits, whether NCCL registers the slots, refuses the blocks' on one rank, or has never heard of it.
TEST_F(DeviceSlots, change_no_bit_where_nccl_refuses_them) {
  const Problem problem = causal(31);
  const Inputs in = random_inputs(problem, 4);
  const auto answer = [&](int refused) {
    const Transport transport{
        "nccl", [=](RankThread& me) {
          simt::nccl_refuse(me.rank == refused ? simt::NcclRefusal::error : simt::NcclRefusal::none);
          return make_nccl_communicator(me.host, me.stream);
        }};
    return run_device_ranks(transport, 3, problem, LayoutKind::striped, in);
  };
  const GradientAnswer with = answer(-1);
  EXPECT_EQ(zero_copy(), messages());
  const int zero_copies = zero_copy();
  const auto expect_same = [&](const GradientAnswer& got, const std::string& what) {
    EXPECT_EQ(got.forward.out.data, with.forward.out.data) << what;
    EXPECT_EQ(got.dq.data, with.dq.data) << what;
    EXPECT_EQ(got.dk.data, with.dk.data) << what;
    EXPECT_EQ(got.dv.data, with.dv.data) << what;
  };
  expect_same(answer(1), "refused by rank 1");
  simt::nccl_version = NCCL_VERSION(2, 18, 5);
  expect_same(answer(-1), "2.18.5");
  simt::nccl_version = NCCL_VERSION_CODE;
  EXPECT_EQ(zero_copy(), zero_copies);
}

// No memory for the gradients' slots: all ranks hear of it, and the next call begins anew on all of them.
TEST_F(DeviceSlots, that_one_rank_cannot_make_are_made_by_the_next_call) {
  const Problem problem = causal(31);
  const Inputs in = random_inputs(problem, 5);
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 31, 31, 2);
  const simt::Config before = simt::config();
  on_ranks(2, [&](RankThread& me) {
    const RankTensors host(problem, sharding, me.rank, in);
    const DeviceTensors device(host, 0);
    RingAttention ring = device_ring(me, nccl(me), problem, LayoutKind::zigzag);
    device.forward(ring);
    ring.settle();
    cudaStreamSynchronize(me.stream);
    const DeviceBlock in_the_way(me.rank == 1 ? std::size_t{1} << 20 : 1);
    me.meet();
    // Rank 1 has room for what its kernel needs in backward, and for no slot.
    if (me.rank == 1) {
      const Workspace backward = workspace(problem, sharding, 1, 1, Pass::backward, Backend::cuda);
      simt::config().device_bytes = simt::allocated_bytes(1) + backward.kernel + 64;
    }
    me.meet();
    try {
      device.backward(ring);
      ADD_FAILURE() << "there was room";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(std::string(error.what()).find("rank 1: could not allocate"), 0u) << error.what();
    }
    EXPECT_EQ(ring.workspace().gradients, 0u);
    me.meet();
    if (me.rank == 0) simt::config().device_bytes = before.device_bytes;
    me.meet();
    device.backward(ring);
    ring.settle();
  });
  simt::config() = before;
}

}  // namespace
}  // namespace ringattn::test
