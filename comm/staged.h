// Device memory over a communicator that knows host memory alone: by way of pinned buffers, in chunks.
#pragma once
#include <cstddef>
#include <memory>

#include "comm/device.h"

namespace ringattn {

struct StagedOptions {
  // Blocks are copied and sent in chunks of this many bytes, 1 or more. Large enough that a copy to the host
  // takes much longer than its start (some 10 us), small enough that the first one delays little.
  std::size_t chunk_bytes = std::size_t{2} << 20;
  // Pinned buffers a direction and channel, 2 or more: a chunk is sent from one while the next is copied into
  // another. Memory: 2 directions x 2 channels x buffers x chunk_bytes, 16 MiB by default.
  int buffers = 2;
};

// Collective over `host` (MPI, say), with the same options on every rank. `stream` and the current device as
// for make_nccl_communicator.
//
// Unlike there, the host works: a transfer progresses in test(), arrived() and wait(), and wait() returns
// when the last chunk has come and its copy to the device is queued. A transfer has its turn after everything
// that the stream had been given when it was started, so the host waits in wait() for that work, too. The
// destructor waits for copies that are still queued.
//
// Throws UsageError if `host` is null, `stream` is null or an option is out of range; OutOfMemory.
std::unique_ptr<DeviceCommunicator> make_staged(std::shared_ptr<Communicator> host, void* stream,
                                                const StagedOptions& options = {});

}  // namespace ringattn
