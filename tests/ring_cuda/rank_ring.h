// One rank of such a ring: what src/attention.cpp does around the two loops, with every tensor on a device.
#pragma once
#include <memory>

#include "src/cost.h"
#include "src/executor.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/ring_cuda/device_rings.h"
#include "tests/support/rank_tensors.h"

namespace ringattn::test {

// A rank's tensors on its device, each exactly as large as it is: what is next to it is guarded.
class DeviceTensors {
 public:
  explicit DeviceTensors(const RankTensors& host);

  ConstTensorView q, k, v, dout;
  TensorView out, dq, dk, dv;
  LseView lse;

  // To the host, where `host` has them. What wrote them has to have ended.
  void read(const RankTensors& host) const;
  // q, k, v and dout, which a call reads.
  std::array<std::span<std::byte>, 4> inputs() const {
    return {q_.bytes(), k_.bytes(), v_.bytes(), dout_.bytes()};
  }

 private:
  DeviceBlock q_, k_, v_, dout_, out_, dq_, dk_, dv_, lse_;
};

class RankRing {
 public:
  RankRing(const RankThread& me, DeviceCommunicator& comm, const DeviceRing& ring, const Problem& problem,
           const Sharding& sharding, const Inputs& in);

  // Both queue a whole call, and expect the traffic of the plan. forward() is preceded by the work that makes
  // the inputs, and end_of_call() queues what spoils them, if that is asked for.
  void forward();
  void backward();
  void end_of_call();
  // Waits for the end of all that is queued, and writes this rank's rows.
  void collect(GradientAnswer& answer);

 private:
  std::span<std::byte> own_block() const {
    return slots_.block[0].bytes().first(kernel_->block_bytes(plan_.k_rows()));
  }
  Rotation rotation(const Layout& layout, index_t shift) const;
  void poison(std::span<const Buffer> slots) const;
  void expect_traffic(const SentCount& before, const Traffic& planned) const;

  void make_inputs();

  const RankThread& me_;
  DeviceCommunicator& comm_;
  const Problem& problem_;
  const Sharding& sharding_;
  Mode mode_;
  bool late_inputs_;
  Plan plan_;
  RankTensors host_;
  std::vector<std::vector<std::byte>> host_inputs_;
  DeviceTensors device_;
  std::unique_ptr<Kernel> kernel_;
  Slots slots_;
};

}  // namespace ringattn::test
