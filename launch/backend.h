// Whether a job computes on CPUs or on GPUs, and whether the machine lets it.
#pragma once
#include <chrono>
#include <string>

#include "comm/communicator.h"
#include "kernels/cuda/devices.h"
#include "launch/options.h"
#include "src/attention.h"

namespace ringattn::launch {

// What the options alone say: --backend, and where that is auto the names that only one backend knows. Throws
// UsageError if --isa is no name of the backend, or of none.
BackendChoice backend_of_options(const Options& options);

// Collective; the same answer on every rank. cuda where the options insist on it, or leave it open and every
// rank has a GPU that can be used: `machine` is what this rank sees. Throws SharedFailure (DeviceError) with
// the reason, if they insist and some rank has none. Rank 0 warns if only some ranks have one and all compute
// on CPUs for that.
Backend choose_backend(Communicator& comm, const Options& options, const CudaMachine& machine,
                       std::chrono::milliseconds patience);

}  // namespace ringattn::launch
