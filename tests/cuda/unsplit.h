// Forward where keys are never split, which the device's rule might do.
#pragma once
#include "kernels/cuda/split_kernel.h"
#include "tests/cuda/support.h"

namespace ringattn::test {

inline Result run_unsplit(const std::string& isa, const Problem& problem, const Inputs& inputs,
                          const Blocks& blocks = {}, Ending ending = Ending::last_block) {
  constexpr cuda::SplitRule kNever{.blocks = 0, .columns = 1};
  return run_made(
      [&](const DeviceStream& stream) {
        return cuda::make_split_kernel(config_of(problem, isa), stream.get(), kNever);
      },
      problem, inputs, blocks, ending);
}

}  // namespace ringattn::test
