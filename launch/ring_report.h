// The measured part that run and bench share: from iterations to a report, with the wire traffic compared to
// the plan's.
#pragma once
#include <string>

#include "launch/report.h"
#include "launch/session.h"

namespace ringattn::launch {

// What is known of the ring once it has turned; the object itself may be gone.
struct RingFacts {
  // Made after its last pass: the workspace is what the ring holds by then.
  RingFacts(const RingAttention& ring, Direction direction, Backend computed_by);
  std::string backend;
  std::size_t hops = 0;
  std::uint64_t workspace_bytes = 0;
  Traffic planned;           // of this rank, an iteration
  double bytes_to_move = 0;  // likewise
};

// Collective. Throws SharedFailure (a bug) if what some rank sent in an iteration is not what its plan says.
void require_planned_traffic(Session& session, const RingFacts& facts, const Iterations& iterations,
                             Mode mode);

// What this rank's threads, or its part of a GPU, can do at best; 0 = not known.
struct Ceilings {
  double fma_peak = 0;        // FLOP/s
  double read_bandwidth = 0;  // bytes/s
};

// Collective. The report without check, comm_seconds and seed.
Report make_report(Session& session, const Problem& problem, const Sharding& sharding, const RingFacts& facts,
                   const Iterations& iterations, const Ceilings& ceilings, std::uint64_t peak_rss);

}  // namespace ringattn::launch
