// Faults on purpose, for tests of the whole program, through the environment variable RINGATTN_TEST_FAULT:
// faults separated by ';', each "kind" or "kind:key=value,key=value". The program prints that it is on.
//
//   output-nan, output-inf, output-off, output-zero
//       The last query row of the output is spoilt before it is checked: one element NaN, Inf or 0.01 off;
//       all zeros. dq-.., dk-.., dv-..: the same to a gradient, whose last checked row or key it is.
//   sleep:rank=R,ms=N
//       Rank R starts every iteration N milliseconds late.
//   delay|truncate|corrupt|fail|vanish|die:rank=R,hop=H[,channel=C][,ms=N]
//       comm/faulty.h, on rank R at hop H (ms: delay only). Channel 0 (default): keys and values, of forward
//       and of backward; 1: their gradients.
//   kill|stop|exit|throw|oom:rank=R,hop=H[,channel=C]
//       SIGKILL, SIGSTOP, _exit(0), an unknown exception, OutOfMemory on rank R when it starts the transfer.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/faulty.h"

namespace ringattn::launch {

enum class OutputFault : std::uint8_t { nan, inf, off, zero };
enum class Spoilt : std::uint8_t { out, dq, dk, dv };
enum class HopAction : std::uint8_t { kill, stop, exit, throw_unknown, out_of_memory };

struct TestFaults {
  struct Sleep {
    int rank = 0;
    std::chrono::milliseconds time{};
  };
  struct Transfer {
    int rank = 0;
    Fault fault;
  };
  struct AtHop {
    int rank = 0;
    int hop = 0;
    int channel = 0;  // Route::channel
    HopAction action = HopAction::kill;
  };
  std::optional<OutputFault> output;  // of `spoilt`
  Spoilt spoilt = Spoilt::out;
  std::vector<Sleep> sleeps;
  std::vector<Transfer> transfers;
  std::vector<AtHop> actions;
  std::string text;  // the variable's value; "" = no fault

  std::chrono::milliseconds sleep_of(int rank) const;
};

// Throws UsageError naming the variable and the part that is wrong. Null or "" = no fault.
TestFaults parse_test_faults(const char* value);

// `inner` with the faults of its rank.
std::shared_ptr<Communicator> with_faults(std::shared_ptr<Communicator> inner, const TestFaults& faults);

}  // namespace ringattn::launch
