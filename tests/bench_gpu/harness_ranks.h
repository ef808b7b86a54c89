// Ranks as threads that the harness knows, so that it can tell when all of them wait.
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace ringattn::test {

// bench/gpu/rings.h's OnRanks; all ranks on device 0.
void on_harness_ranks(int size, const std::function<void(std::shared_ptr<Communicator>)>& body);

}  // namespace ringattn::test
