// A ring of one rank.
#pragma once
#include <memory>

#include "comm/communicator.h"

namespace ringattn {

std::unique_ptr<Communicator> make_self_communicator();

}  // namespace ringattn
