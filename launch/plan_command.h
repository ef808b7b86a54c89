// ringattn plan: what a ring of any number of ranks would compute, send and hold, without running it.
#pragma once
#include "launch/options.h"

namespace ringattn::launch {

void plan_command(const Options& options);

}  // namespace ringattn::launch
