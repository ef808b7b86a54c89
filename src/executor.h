// The ring loop. Main path of the library: src/attention.h builds the objects, executor.cpp turns the ring.
#pragma once
#include <chrono>
#include <vector>

#include "comm/communicator.h"
#include "kernels/kernel.h"
#include "src/plan.h"
#include "src/slots.h"

namespace ringattn {

enum class Mode : std::uint8_t {
  overlap,       // a hop's transfer runs while the hop is computed
  blocking,      // a hop's transfer ends before the hop is computed: same bits, no overlap
  compute_only,  // no transfers; the numbers are wrong for more than one rank. For measurements.
  comm_only,     // no arithmetic; the numbers are wrong. For measurements.
};
std::string_view name_of(Mode mode);         // "overlap", "blocking", "compute-only", "comm-only"
Mode mode_from_name(std::string_view name);  // throws UsageError

// Where the time of one call went, in seconds, on this rank: of its host. Work of a GPU is queued in these
// times, and runs later.
struct HopTiming {
  double compute = 0;  // inside the kernel (in overlap mode with the polling of the transfer)
  double wait = 0;     // waiting for a transfer with nothing to compute
};
struct Timing {
  std::vector<HopTiming> hops;
  // Rotating and packing; unpacking and rounding, as far as the kernel has not done that during the last hop.
  double load = 0, finish = 0;
  double compute() const;
  double wait() const;
};

// Attends over all hops of the plan and writes out and lse. The kernel's queries are loaded and slot 0 holds
// this rank's own block. Every wait ends `patience` after it began at the latest.
void run_forward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots, const TensorView& out,
                 const LseView& lse, Mode mode, std::chrono::milliseconds patience, Timing& timing);

// What run_backward asks for when it is time: this rank's rows, while the first block is under way, and its
// own keys and values.
struct BackwardRows {
  std::function<void(const Poll& poll)> load_rows;
  std::function<void(std::span<std::byte> block)> load_block;
};

// The same hops, the rank's own block last. K and V leave before a hop is computed; dK and dV of the block at
// hand leave after it, one hop behind, and come straight home after the last hop, where the own block's are
// added to them. Returns dK and dV of this rank's own keys, in one of the slots.
std::span<const std::byte> run_backward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots,
                                        const BackwardRows& rows, Mode mode,
                                        std::chrono::milliseconds patience, Timing& timing);

}  // namespace ringattn
