// Every communicator for device memory, on 1 to 5 ranks and several seeds of the harness.
#include <gtest/gtest.h>

#include "comm/device_ranks.h"
#include "comm/mpi_device.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "tests/comm_cuda/device_checks.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/simt/config.h"
#include "tests/simt/nccl.h"

namespace ringattn::test {
namespace {

struct Carrier {
  const char* name;
  MakeDeviceCommunicator make;
  Devices devices = Devices::own;
};

void PrintTo(const Carrier& carrier, std::ostream* out) { *out << carrier.name; }

std::unique_ptr<DeviceCommunicator> nccl(RankThread& me) {
  return make_nccl_communicator(me.host, me.stream);
}
std::unique_ptr<DeviceCommunicator> staged(RankThread& me) {
  return make_staged(me.host, me.stream, {.chunk_bytes = 1000, .buffers = 2 + me.size % 2});
}
std::unique_ptr<DeviceCommunicator> device_ranks(RankThread& me) {
  return make_device_ranks(me.host, me.stream);
}
// What an MPI with support for devices is given; the watch sees to it that it is device memory, in its turn.
std::unique_ptr<DeviceCommunicator> direct(RankThread& me) {
  const auto host = make_device_memory_watch(me.host, std::make_shared<BlockCount>());
  return make_mpi_device(
             [&, first = true]() mutable { return std::exchange(first, false) ? host : me.aside; }, me.stream,
             {.claimed = true})
      .comm;
}

class DeviceRing : public testing::TestWithParam<std::tuple<Carrier, int>> {
 protected:
  void run(void (*check)(const RankThread&, DeviceCommunicator&)) {
    const auto& [carrier, ranks] = GetParam();
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      simt::config().seed = seed;
      const auto body = [&, &make = carrier.make](RankThread& me) {
        const auto comm = make(me);
        check(me, *comm);
      };
      on_ranks(ranks, body, carrier.devices);
    }
    EXPECT_EQ(simt::nccl_alive(), 0);
  }
};

TEST_P(DeviceRing, BlocksOfAllSizesArrive) { run(check_device_sizes); }
TEST_P(DeviceRing, CallsAreQueuedAtOnce) { run(check_device_turns); }
TEST_P(DeviceRing, DistancesAndChannels) { run(check_device_distances); }
TEST_P(DeviceRing, BackwardSendsSumsBehindTheBlocks) { run(check_device_backward); }
TEST_P(DeviceRing, SentIsWhatWasAskedFor) { run(check_device_sent); }
TEST_P(DeviceRing, RefusalsChangeNothing) { run(check_device_refusals); }

INSTANTIATE_TEST_SUITE_P(
    Carriers, DeviceRing,
    testing::Combine(testing::Values(Carrier{"nccl", nccl}, Carrier{"staged", staged},
                                     Carrier{"direct", direct}, Carrier{"device_ranks", device_ranks},
                                     Carrier{"one_device", device_ranks, Devices::shared}),
                     testing::Range(1, 6)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
    });

}  // namespace
}  // namespace ringattn::test
