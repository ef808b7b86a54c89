// The ring loop. Main path of the library: src/attention.h builds the objects, executor.cpp turns the ring.
#pragma once
#include <array>
#include <chrono>
#include <vector>

#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "src/plan.h"

namespace ringattn {

enum class Mode : std::uint8_t {
  overlap,       // a hop's transfer runs while the hop is computed
  blocking,      // a hop's transfer ends before the hop is computed: same bits, no overlap
  compute_only,  // no transfers; the numbers are wrong for more than one rank. For measurements.
  comm_only,     // no arithmetic; the numbers are wrong. For measurements.
};
std::string_view name_of(Mode mode);         // "overlap", "blocking", "compute-only", "comm-only"
Mode mode_from_name(std::string_view name);  // throws UsageError

// Where the time of one call went, in seconds, on this rank.
struct HopTiming {
  double compute = 0;  // inside the kernel (in overlap mode with the polling of the transfer)
  double wait = 0;     // waiting for a transfer with nothing to compute
};
struct Timing {
  std::vector<HopTiming> hops;
  double load = 0, finish = 0;  // rotating and packing; unpacking and rounding
  double compute() const;
  double wait() const;
};

// Both slots hold the largest block of any rank.
struct Slots {
  std::array<Buffer, 2> block;
};

// Attends over all hops of the plan. The kernel's queries are loaded and slot 0 holds this rank's own block.
// Every wait ends `patience` after it began at the latest.
void run_forward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots, Mode mode,
                 std::chrono::milliseconds patience, Timing& timing);

}  // namespace ringattn
