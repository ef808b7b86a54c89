// ringattn bench: attention over synthetic tensors, timed and checked.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "launch/options.h"
#include "launch/ranks.h"

namespace ringattn::launch {

// Collective. Throws SharedFailure on all ranks alike, anything else alone.
void bench(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat);

}  // namespace ringattn::launch
