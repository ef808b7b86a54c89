// The whole program: arguments in, exit code out.
#pragma once
#include <string>
#include <vector>

#include "launch/exit_code.h"

namespace ringattn::launch {

// `arguments` without the program's name. Everything that goes wrong has been printed when this returns.
ExitCode program(const std::vector<std::string>& arguments) noexcept;

}  // namespace ringattn::launch
