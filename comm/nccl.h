// The ring over NCCL: blocks in device memory, sent and received by the device beside the computation.
#pragma once
#include <chrono>
#include <memory>

#include "comm/device.h"

namespace ringattn {

struct NcclOptions {
  // An ncclComm_t of the caller, with the ranks of the bootstrap in their order. A communicator of our own is
  // split off it, since one that has failed is aborted, and the caller's must survive that. Null: one is made
  // by means of the bootstrap alone.
  void* comm = nullptr;
  // Longest that making the communicator, connecting to a peer for the first time, and ending may take.
  std::chrono::milliseconds patience{300'000};
};

// Whether this build holds it. Without NCCL make_nccl_communicator throws DeviceError.
bool nccl_built();

// Collective over the bootstrap, which any host communicator can be; it carries all_gather() and abort().
// `stream`: the cudaStream_t to which the communicator is bound. The current device of the calling thread is
// that of the stream, and stays so in every call. Blocks are device memory of that device.
//
// One NCCL communicator and one stream serve both channels: NCCL requires that all ranks queue the operations
// of a communicator in the same order, and two communicators that run side by side can block each other. A
// transfer that is late, measured from the moment when the device could have begun it (wait() tells how long
// it may take), an asynchronous error of NCCL and a shift that is given up end the NCCL communicator of this
// rank: ncclCommAbort frees the streams, so that a synchronisation of the host returns, and every later call
// throws CommError. A thread of the communicator looks after that while the host is elsewhere. NCCL does not
// compare sizes; what the two ends of a transfer agree on is the caller's affair.
//
// block_memory() gives memory that NCCL registers (2.19.1 and later; between GPUs of one machine it saves
// copies since 2.23, between machines where NCCL's manual says so): it sends from it and receives into it as
// it lies. RingAttention takes its slots from there, once for all calls. Where NCCL refuses on one rank, no
// rank has it, and blocks travel as before. NCCL rounds such memory up to whole pages of the GPU, 2 MiB.
//
// Throws UsageError if `bootstrap` is null, `stream` is null, or the ranks of options.comm differ from those
// of the bootstrap; CommError if NCCL refuses, or at the end of options.patience.
std::unique_ptr<DeviceCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap,
                                                           void* stream, const NcclOptions& options = {});

}  // namespace ringattn
