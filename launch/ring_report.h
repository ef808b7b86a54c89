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
  RingFacts(const RingAttention& ring, Direction direction);
  std::string backend;
  std::size_t hops = 0;
  std::uint64_t workspace_bytes = 0;
  Traffic planned;  // of this rank, an iteration
};

// Collective. Throws SharedFailure (a bug) if what some rank sent in an iteration is not what its plan says.
void require_planned_traffic(Session& session, const RingFacts& facts, const Iterations& iterations,
                             Mode mode);

// Collective. The report without check, comm_seconds and seed. fma_peak: this rank's, 0 = not measured.
Report make_report(Session& session, const Problem& problem, const Sharding& sharding, const RingFacts& facts,
                   const Iterations& iterations, double fma_peak, std::uint64_t peak_rss);

}  // namespace ringattn::launch
