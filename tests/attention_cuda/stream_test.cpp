// Order between the caller's stream and a call, and that the host queues a call without waiting for it.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "src/error.h"
#include "tests/attention_cuda/device_ring.h"
#include "tests/simt/stream.h"
#include "tests/support/narrow.h"

namespace ringattn::test {
namespace {

// Holds streams until it is opened: whoever waits for one of them meanwhile waits for ever.
class Gate {
 public:
  void hold(cudaStream_t stream) {
    simt::System::get().push(*stream, {"gate", [open = open_] { return open->load(); }, [] {}, {}});
  }
  void open() {
    *open_ = true;
    simt::System::get().changed();
  }

 private:
  std::shared_ptr<std::atomic<bool>> open_ = std::make_shared<std::atomic<bool>>(false);
};

// Test 1 of case A9, with its answers.
struct A9 {
  Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 8}, .mask = Mask::full(16, 16)};
  Inputs in = case_inputs(problem);
  static void expect(const GradientAnswer& got, const std::string& where) {
    const auto sum_abs = [](const Tensor& x) {
      return std::accumulate(x.data.begin(), x.data.end(), 0.0,
                             [](double sum, double y) { return sum + std::fabs(y); });
    };
    EXPECT_NEAR(sum_abs(got.dq), 10.341137209664, 1e-4) << where;
    EXPECT_NEAR(sum_abs(got.dk), 10.364823782113, 1e-4) << where;
    EXPECT_NEAR(sum_abs(got.dv), 32.935960027524, 1e-4) << where;
    EXPECT_NEAR(got.dq.at(0, 0, 0, 0), -0.036385535848, 1e-6) << where;
    EXPECT_NEAR(got.dv.at(0, 15, 1, 3), 0.185958572592, 1e-6) << where;
  }
};

void late_copy(cudaStream_t stream, const ConstTensorView& to, const ConstTensorView& from) {
  const std::size_t bytes = static_cast<std::size_t>(from.shape[0] * from.stride[0]) * size_of(from.dtype);
  auto* const place = static_cast<std::byte*>(const_cast<void*>(to.data));
  write_poison(stream, {place, bytes});
  on_stream(stream, {place, bytes}, simt::Access::write, [data = from.data](std::span<std::byte> written) {
    if (!written.empty()) std::memcpy(written.data(), data, written.size());
  });
}

// The "Stream order" of the cases for GPUs: K and everything else is made on the stream just before the call,
// and out is read behind it. Repeats follow one another without the host waiting.
TEST(DeviceStreams, inputs_may_still_be_under_way_on_the_stream) {
  const A9 a9;
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 16, 16, 2);
  constexpr int kRepeats = 25;  // over each of four transports: 100
  for (const Transport& transport : transports()) {
    std::vector<GradientAnswer> answers(kRepeats, empty_gradients(a9.problem));
    on_ranks(
        2,
        [&](RankThread& me) {
          RankTensors host(a9.problem, sharding, me.rank, a9.in);
          const DeviceTensors device(host, 0);
          RingAttention ring = device_ring(me, transport.make(me), a9.problem, LayoutKind::contiguous);
          for (int repeat = 0; repeat < kRepeats; ++repeat) {
            late_copy(me.stream, device.k, host.k);
            late_copy(me.stream, device.v, host.v);
            late_copy(me.stream, device.q, host.q);
            late_copy(me.stream, device.dout, host.dout);
            device.forward(ring);
            device.backward(ring);
            for (const ConstTensorView& x : {device.q, device.k, device.v})
              write_poison(me.stream, {static_cast<std::byte*>(const_cast<void*>(x.data)),
                                       static_cast<std::size_t>(x.shape[0] * x.stride[0]) * sizeof(float)});
            if (repeat % 5 != 4) continue;  // the host is up to five calls ahead
            ring.settle();
            device.download();
            host.collect(answers[static_cast<std::size_t>(repeat)]);
          }
        },
        transport.devices);
    for (int repeat = 4; repeat < kRepeats; repeat += 5)
      A9::expect(answers[static_cast<std::size_t>(repeat)], transport.name + std::to_string(repeat));
  }
}

// The gate stands before all of it, so a call that waits for its stream, or for a copy, does not return.
// Staged blocks are left out: there the host carries them, as comm/staged.h says.
TEST(DeviceStreams, the_host_does_not_wait_in_a_call) {
  const A9 a9;
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 16, 16, 2);
  for (const Transport& transport : transports()) {
    if (std::string(transport.name) == "staged") continue;
    GradientAnswer answer = empty_gradients(a9.problem);
    Gate gate;
    on_ranks(
        2,
        [&](RankThread& me) {
          const RankTensors host(a9.problem, sharding, me.rank, a9.in);
          const DeviceTensors device(host, 0);
          RingAttention ring = device_ring(me, transport.make(me), a9.problem, LayoutKind::contiguous);
          gate.hold(me.stream);
          device.forward(ring);
          device.backward(ring);
          device.forward(ring);
          EXPECT_EQ(cudaStreamQuery(me.stream), cudaErrorNotReady) << transport.name;
          me.meet();
          gate.open();
          ring.settle();
          EXPECT_EQ(cudaStreamQuery(me.stream), cudaSuccess) << transport.name;
          device.download();
          host.collect(answer);
        },
        transport.devices);
    A9::expect(answer, transport.name);
  }
}

TEST(DeviceStreams, settle_gives_up_at_the_deadline_and_the_object_lives_on) {
  const A9 a9;
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 16, 16, 1);
  GradientAnswer answer = empty_gradients(a9.problem);
  on_ranks(1, [&](RankThread& me) {
    const RankTensors host(a9.problem, sharding, 0, a9.in);
    const DeviceTensors device(host, 0);
    RingAttention ring(me.host, a9.problem, sharding,
                       {.threads = 1,
                        .deadline = std::chrono::milliseconds(50),
                        .backend = Backend::cuda,
                        .stream = me.stream});
    Gate gate;
    gate.hold(me.stream);
    device.forward(ring);
    device.backward(ring);
    try {
      ring.settle();
      ADD_FAILURE() << "settled behind a closed gate";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("timed out after 0.0"), std::string::npos) << error.what();
    }
    gate.open();
    cudaStreamSynchronize(me.stream);
    device.download();
    host.collect(answer);
  });
  A9::expect(answer, "after the deadline");
}

// Objects and communicators end while their calls are still to run: their memory goes in the order of the
// stream, behind the peers' copies from it.
TEST(DeviceStreams, an_object_may_end_before_its_work_has) {
  const A9 a9;
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 16, 16, 3);
  for (const Transport& transport : transports()) {
    GradientAnswer answer = empty_gradients(a9.problem);
    on_ranks(
        3,
        [&](RankThread& me) {
          const RankTensors host(a9.problem, sharding, me.rank, a9.in);
          const DeviceTensors device(host, 0);
          {
            RingAttention ring = device_ring(me, transport.make(me), a9.problem, LayoutKind::contiguous);
            device.forward(ring);
            device.backward(ring);
          }
          me.meet();
          cudaStreamSynchronize(me.stream);
          device.download();
          host.collect(answer);
        },
        transport.devices);
    A9::expect(answer, transport.name);
  }
}

}  // namespace
}  // namespace ringattn::test
