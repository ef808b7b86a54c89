// Ranks with a device of their own (or all with one), a compute stream, and a host communicator to start
// from.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <memory>

#include "comm/device.h"

namespace ringattn::test {

struct RankThread {
  int rank = 0, size = 1;
  std::shared_ptr<Communicator> host{};   // to make communicators from
  std::shared_ptr<Communicator> aside{};  // another one of the same ranks, which stays whole when those fail
  cudaStream_t stream = nullptr;
  // Waits on the host until all ranks have come here.
  void meet() const;
};

enum class Devices : std::uint8_t { own, shared };

// Runs `body` for each rank on a thread. An exception of a rank is told to the others, and the first fault of
// the harness, or else of a rank, is rethrown.
void on_ranks(int size, const std::function<void(RankThread&)>& body, Devices devices = Devices::own);

// What makes a communicator for a rank; checks are written for any.
using MakeDeviceCommunicator = std::function<std::unique_ptr<DeviceCommunicator>(RankThread&)>;

}  // namespace ringattn::test
