// Whether a transport really carries device memory: a trial. Internal to comm/.
#pragma once
#include <string>

#include "comm/communicator.h"

namespace ringattn {

// Collective over `probe`, which may be lost by it. Sends patterns in device memory to both neighbours at
// once, on both channels, short ones and such as no transport sends at once, and compares on the host what
// has come. Returns what went wrong, empty if nothing did. `stream` and the current device as for
// make_nccl_communicator; waits for the stream.
std::string probe_device_memory(Communicator& probe, void* stream, Deadline deadline);

}  // namespace ringattn
