// A communicator that fails on purpose at a chosen hop, for tests of everything above it.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace ringattn {

struct Fault {
  enum class Kind : std::uint8_t {
    delay,     // the shift starts `delay` late
    truncate,  // one byte less is sent
    corrupt,   // one bit of what is sent is flipped; the caller's block is left alone
    fail,      // shift() throws CommError
    die,       // the process ends at once with _exit(137)
    vanish,    // nothing is sent and nothing received: the peers see silence
  };
  Kind kind = Kind::fail;
  int hop = 0;
  int channel = 0;
  std::chrono::milliseconds delay{0};
};

// Faults are applied by the rank that holds this decorator.
std::unique_ptr<Communicator> make_faulty(std::shared_ptr<Communicator> inner, std::vector<Fault> faults);

}  // namespace ringattn
