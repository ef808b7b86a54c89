// A communicator whose rank does something drastic when it starts the transfer of a chosen hop and channel.
#pragma once
#include <memory>

#include "launch/fault_hook.h"

namespace ringattn::launch {

std::shared_ptr<Communicator> make_acting_at_hop(std::shared_ptr<Communicator> inner, int hop, int channel,
                                                 HopAction action);

}  // namespace ringattn::launch
