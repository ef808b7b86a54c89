// Ranks as threads of one process with their blocks in device memory, on several devices or all on one: a
// ring of 4 on a single GPU, which NCCL refuses.
#pragma once
#include <memory>

#include "comm/device.h"

namespace ringattn {

// Collective over `threads`, whose ranks are threads of one process (comm/threads.h); it carries all_gather()
// and abort(). `stream` and the current device as for make_nccl_communicator. Where ranks have different
// devices, these must be able to reach each other's memory (cudaDeviceEnablePeerAccess), or CUDA copies
// through the host.
//
// The receiver copies a block from the sender's memory on a stream of its own. Shift::wait waits for the
// peers' hosts to come to the same shift, as long as the deadline allows, and never for a device: what they
// do on the device is ordered by events.
//
// Throws UsageError if `threads` is null, `stream` is null, or a rank lives in another process.
std::unique_ptr<DeviceCommunicator> make_device_ranks(std::shared_ptr<Communicator> threads, void* stream);

}  // namespace ringattn
