// ringattn run: attention over the tensors of files.
#pragma once
#include <memory>

#include "comm/communicator.h"
#include "launch/options.h"
#include "launch/ranks.h"

namespace ringattn::launch {

// Collective. Throws SharedFailure on all ranks alike, anything else alone.
void run(const std::shared_ptr<Communicator>& comm, const Options& options, const Seat& seat);

}  // namespace ringattn::launch
