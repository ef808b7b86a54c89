// What every rank of run and bench has before it starts on its tensors.
#pragma once
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "launch/fault_hook.h"
#include "launch/options.h"
#include "launch/placement.h"
#include "launch/progress.h"
#include "src/attention.h"
#include "src/problem.h"

namespace ringattn::launch {

struct Session {
  const Options& options;
  std::shared_ptr<Communicator> comm;  // with the options' link and the test faults
  std::string comm_name;               // of the communicator below those: "self", "threads", "mpi"
  Placement placement;
  TestFaults faults;

  int rank() const { return comm->rank(); }
  int ranks() const { return comm->size(); }
  int threads() const { return placement.ranks[static_cast<std::size_t>(rank())].threads; }
  RingOptions ring_options(Mode mode) const;
  Sharding sharding(const Problem& problem) const;
  Switch progress() const { return rank() == 0 ? options.progress : Switch::off; }
};

// Collective. Checks the instruction set and the test faults, counts threads and CPUs; rank 0 prints the
// warnings.
Session open_session(const std::shared_ptr<Communicator>& comm, const Options& options,
                     bool ranks_are_threads);

// Collective. Ranks compare the problem, the sharding and the program's own fields.
void agree_on_problem(Session& session, const Problem& problem, const Sharding& sharding);

// Collective. Throws SharedFailure if some rank has not the memory for its tensors and workspace.
// `reader_bytes`: what the check's inputs hold besides. The options' direction says whether gradients count.
void require_shard_memory(Session& session, const Problem& problem, const Sharding& sharding,
                          double reader_bytes = 0);

}  // namespace ringattn::launch
