// A host communicator that watches what memory it is given: whether a device communicator really hands on
// device memory, and only when the host may touch it.
#pragma once
#include <atomic>
#include <memory>

#include "comm/communicator.h"

namespace ringattn::test {

// Blocks by where they lie, of all ranks that share the counter. Empty ones are not counted.
struct BlockCount {
  std::atomic<int> device{0}, other{0};
};

// Counts the blocks of every shift. Those on a device must be on the current one of the calling thread, and
// the harness must know that the work which wrote a block to be sent, and that which read or wrote the place
// of one to be received, has ended for the host: otherwise it raises a Fault of kind usage or race. (On the
// harness device memory is memory of this process, so that `inner` can do the rest. What the host touches
// leaves no mark in the harness, so that work on a stream which is too early shows by its numbers alone.)
std::shared_ptr<Communicator> make_device_memory_watch(std::shared_ptr<Communicator> inner,
                                                       std::shared_ptr<BlockCount> count);

}  // namespace ringattn::test
