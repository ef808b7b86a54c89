// Ranks as threads of one process with their blocks in device memory, on several devices or all on one: a
// ring of 4 on a single GPU, which NCCL refuses.
#pragma once
#include <memory>

#include "comm/device.h"

namespace ringattn {

// Collective over `threads`, whose ranks are threads of one process (comm/threads.h); it carries all_gather()
// and abort(). `stream` and the current device as for make_nccl_communicator.
//
// Where ranks have different devices, each is let touch the memory of the others if the machine has a way
// between them (NVLink, or PCI Express within one root): both what cudaMalloc gives there and what
// cudaMallocAsync gives from the pool that the device has when the communicator is made. This holds for the
// whole process and is not taken back; what the caller has opened before is left as it is. Where there is no
// way, or CUDA refuses one (it allows a device 8 peers), blocks are copied all the same, through the host, at
// a fraction of the speed.
//
// The receiver copies a block from the sender's memory on a stream of its own. Shift::wait waits for the
// peers' hosts to come to the same shift, as long as the deadline allows, and never for a device: what they
// do on the device is ordered by events.
//
// Throws UsageError if `threads` is null, `stream` is null, or a rank lives in another process.
std::unique_ptr<DeviceCommunicator> make_device_ranks(std::shared_ptr<Communicator> threads, void* stream);

}  // namespace ringattn
