// Rings of ranks with device memory, and whole problems on them.
#pragma once
#include "tests/attention_cuda/device_tensors.h"
#include "tests/comm_cuda/rank_threads.h"

namespace ringattn::test {

// How the ranks move their blocks, and on which devices they are.
struct Transport {
  const char* name;
  MakeDeviceCommunicator make;
  Devices devices = Devices::own;
};
// NCCL, ranks of one process on a device each and all on one, and staged over threads.
std::vector<Transport> transports();

// One rank's object, computing on its stream.
RingAttention device_ring(const RankThread& me, std::shared_ptr<Communicator> comm, const Problem& problem,
                          LayoutKind layout, Mode mode = Mode::overlap);

// Forward and backward of every rank, queued one behind the other, put together from all ranks.
GradientAnswer run_device_ranks(const Transport& transport, int ranks, const Problem& problem,
                                LayoutKind layout, const Inputs& in, index_t gap = 0,
                                Mode mode = Mode::overlap);

}  // namespace ringattn::test
