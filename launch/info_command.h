// ringattn info: what this build and this machine have.
#pragma once
#include "launch/options.h"

namespace ringattn::launch {

void info_command(const Options& options);

}  // namespace ringattn::launch
