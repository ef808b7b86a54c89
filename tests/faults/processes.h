// The processes of one job, found from outside in /proc by a mark in the environment they were started with.
// Jobs of tests that run side by side are so never mixed up, and nothing is looked for by name alone.
#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace ringattn::test {

struct JobProcess {
  pid_t pid = 0;
  std::string name;         // as in /proc/PID/comm
  std::optional<int> rank;  // OMPI_COMM_WORLD_RANK, which mpirun gives to ranks and nobody else

  std::string text() const;  // "4711 (ringattn, rank 2)"
};

// All living processes whose environment holds the entry "NAME=VALUE". Zombies have no environment any more
// and do not count: they are dead, whether or not somebody has asked for their exit code.
std::vector<JobProcess> processes_with(const std::string& entry);

}  // namespace ringattn::test
