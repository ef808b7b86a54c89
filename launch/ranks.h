// From a process to its ranks: one of mpirun's processes, a process alone, or threads of one process.
#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "launch/exit_code.h"
#include "launch/options.h"

namespace ringattn::launch {

// What the environment says about a launcher such as mpirun or srun.
struct Launcher {
  bool present = false;
  int size = 1;  // processes; 1 if the launcher does not say
};
Launcher launcher_of_environment();

// Where a rank is among the ranks of its machine.
struct Seat {
  bool ranks_are_threads = false;  // of one process
  int local_rank = 0;              // its number among those of the machine, from 0
  // Of ranks that MPI started: another communicator of them all, and what comm/mpi_device_claim.h says.
  std::function<std::shared_ptr<Communicator>()> another{};
  std::function<bool()> claims_device_memory{};
};

// What one rank does. Throws SharedFailure on all ranks alike, anything else alone.
using RankProgram = std::function<void(const std::shared_ptr<Communicator>&, const Seat&)>;

// Throws UsageError if the options do not fit the launcher or the build: self or threads with several
// processes, mpi or nccl, whose ranks MPI starts and introduces, in a build without MPI.
void check_communicator(const Options& options, const Launcher& launcher);

// Runs the program on MPI's ranks: MPI is initialised and, unless the job is aborted, finalised. Throws
// UsageError in a build without MPI.
ExitCode run_mpi_ranks(const RankProgram& program);
ExitCode run_self_rank(const RankProgram& program);
ExitCode run_thread_ranks(int ranks, const RankProgram& program);

// "Open MPI v4.1.4, ..." without initialising MPI; "" in a build without it.
std::string mpi_library();

}  // namespace ringattn::launch
