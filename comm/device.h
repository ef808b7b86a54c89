// Communicators whose blocks lie in device memory: the same interface, and what its words mean on a stream.
#pragma once
#include <functional>

#include "comm/communicator.h"

namespace ringattn {

// Memory with an owner who knows how it goes back.
using BlockMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

// Bound to one compute stream of the caller, on which everything that makes and reads the blocks is queued.
// All of Communicator holds in the order of that stream:
// - shift() may be called while work before it on the stream is still to run. The block is sent as that work
//   leaves it, and what arrives is written when that work has ended.
// - After wait(), work queued on the stream may overwrite the block sent and read the one received. The host
//   does not wait for the device.
// - test() asks whether both have ended on the device.
// - arrived() makes the stream wait for the bytes that it tells of. It is asked when they are needed, just
//   before the work that touches them is queued.
// So the ring loops of src/executor.cpp are right as they are, and queue a whole call without waiting.
//
// All ranks start their shifts in the same order, whatever the channels, as the ring loops do.
class DeviceCommunicator : public Communicator {
 public:
  // The cudaStream_t that it is bound to.
  virtual void* stream() const = 0;
  // Waits on the host until every shift that was started has ended on the device: the end of a call for
  // whoever needs the numbers. Throws CommError at the deadline, with the words of Shift::wait, and when a
  // peer is known to have failed; DeviceError if the device fails.
  virtual void settle(Deadline deadline) = 0;
  // Collective: every rank asks for as many blocks of as many bytes, more than 0. Device memory from which
  // and into which this communicator moves blocks with fewer copies than others', or an empty list, on every
  // rank alike, where some rank has none to offer: then any device memory does. It is zeroed in the order of
  // the stream. What travels from such memory arrives in such memory. When it goes back its owner waits on
  // the host until the stream has come to where it is then, so that no transfer and no work of the stream
  // finds it gone. It may outlive the communicator. Throws CommError and DeviceError.
  virtual std::vector<BlockMemory> block_memory(std::size_t /*count*/, std::size_t /*bytes*/,
                                                Deadline /*deadline*/) {
    return {};
  }
};

}  // namespace ringattn
