// Where the ranks are: machines, CPUs, threads. Every rank knows the same figures.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/types.h"

namespace ringattn::launch {

struct RankPlace {
  std::string host;
  std::vector<int> cpus;  // it may run on these
  int threads = 0;
};

struct Placement {
  std::vector<RankPlace> ranks;
  bool ranks_are_threads = false;  // of one process
  int ranks_on_node(int rank) const;
  int cpus_on_node(int rank) const;  // that some rank of the machine may run on
  int threads_on_node(int rank) const;
  bool oversubscribed() const;  // on some machine there are more threads than CPUs, or on some rank
  // "rank 0: threads 2 > allowed CPUs 1": what a user who sees a slow run should know.
  std::vector<std::string> warnings() const;
};

// Threads of a rank if the user gave none: OMP_NUM_THREADS (its first number), else the CPUs it may run on,
// shared with the ranks of the same machine that may run on them too; at least 1. Throws UsageError naming
// OMP_NUM_THREADS if that is malformed. `environment` is the variable's value, or null.
int default_threads(const Placement& placement, int rank, const char* environment);

// Collective.
Placement place_ranks(Communicator& comm, std::optional<index_t> threads, bool ranks_are_threads,
                      std::chrono::milliseconds patience);

}  // namespace ringattn::launch
