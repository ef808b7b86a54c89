// The command line of the program gpu-acceptance.
#pragma once
#include <iosfwd>
#include <span>
#include <string>

#include "bench/gpu/rings.h"

namespace ringattn::acceptance {

// info | units | kernels | rings, then --extent tiny|small|full and --chapters A,B. Writes lines of JSON to
// `out` and reasons to `err`. Returns the exit code: 0, 1 a check failed, 2 usage, 5 no device or a broken
// one.
int run_command(std::span<const std::string> arguments, const OnRanks& on_ranks, std::ostream& out,
                std::ostream& err);

}  // namespace ringattn::acceptance
