// Rings of several logical ranks on one GPU: RingAttention in device memory, a thread and a stream a rank.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/lines.h"
#include "src/attention.h"

namespace ringattn::acceptance {

// Runs the body once for each of `size` ranks, each on a thread of its own, with a host communicator among
// them (comm/threads.h). An exception of a rank ends the others and is rethrown.
using OnRanks = std::function<void(int size, const std::function<void(std::shared_ptr<Communicator>)>& body)>;

struct RingCase {
  KernelCase whole;  // the problem as one device would have it: one block
  Mask mask;
  LayoutKind layout = LayoutKind::contiguous;
  int ranks = 1;

  std::string name() const;
  Problem problem() const;
  Sharding sharding() const;
};
// All layouts at 1, 2 and 4 ranks; groups of heads and dtypes go with the mask. Lengths are primes.
std::vector<RingCase> ring_cases(Extent extent);

// Whole tensors, put together from all ranks; NaN where no rank wrote.
struct RingResult {
  std::vector<std::byte> out, lse, dq, dk, dv;
  friend bool operator==(const RingResult&, const RingResult&) = default;
};
// Forward and backward, `runs` times in a row with the same objects; one result a run.
std::vector<RingResult> run_ring(const RingCase& ring, const Inputs& inputs, const std::string& chapter,
                                 int runs, const OnRanks& on_ranks);

// One check a case: near the oracle forward and backward, and the same bits in a second run.
void check_ring(const RingCase& ring, const Inputs& inputs, const Truth& truth, const std::string& chapter,
                const OnRanks& on_ranks, Lines& lines);
void check_rings(Extent extent, const std::string& chapter, const OnRanks& on_ranks, Lines& lines);

// Seconds of a forward and of a backward call of a ring of 4 against one rank, the same problem, taking
// turns: causal (zigzag) and full (contiguous). Figures, not checks; "target" is the ratio that is wished
// for.
void time_rings(Extent extent, const OnRanks& on_ranks, Lines& lines);

}  // namespace ringattn::acceptance
