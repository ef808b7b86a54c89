#include "launch/ranks.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "comm/self.h"
#include "comm/threads.h"
#include "launch/option_values.h"
#include "launch/steps.h"
#include "src/error.h"
#ifdef RINGATTN_HAVE_MPI
#include "comm/mpi.h"
#include "comm/mpi_device_claim.h"
#endif

namespace ringattn::launch {
namespace {

#ifdef RINGATTN_HAVE_MPI
// MPI from here to the end of the scope. A rank that failed alone never reaches the end: abort() does not
// return.
class MpiSession {
 public:
  MpiSession() {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
      throw CommError("MPI_Init_thread failed");
    }
    if (provided < MPI_THREAD_FUNNELED) {
      MPI_Finalize();
      throw CommError("this MPI gives thread level " + std::to_string(provided) +
                      ", MPI_THREAD_FUNNELED is needed");
    }
  }
  ~MpiSession() { MPI_Finalize(); }
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};
#endif

#ifdef RINGATTN_HAVE_MPI
// Ranks of a machine are those that can share memory, whatever their machines are called.
int local_rank_of(MPI_Comm comm) {
  MPI_Comm neighbours = MPI_COMM_NULL;
  int rank = 0;
  const bool known =
      MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &neighbours) == MPI_SUCCESS &&
      MPI_Comm_rank(neighbours, &rank) == MPI_SUCCESS;
  if (neighbours != MPI_COMM_NULL) MPI_Comm_free(&neighbours);
  if (!known) throw CommError("MPI_Comm_split_type failed");
  return rank;
}
#endif

std::optional<int> number_of_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  try {
    return static_cast<int>(parse_whole(name, value, 1, 1 << 30));
  } catch (const UsageError&) {
    return std::nullopt;  // not ours to judge
  }
}

}  // namespace

Launcher launcher_of_environment() {
  // Open MPI; MPICH, Intel MPI and srun --mpi=pmi2; PMIx, which tells the rank only.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const auto size = number_of_variable(name)) return {.present = true, .size = *size};
  }
  return {.present = std::getenv("PMIX_RANK") != nullptr, .size = 1};
}

void check_communicator(const Options& options, const Launcher& launcher) {
  constexpr std::array names{"auto", "self", "threads", "mpi", "nccl"};
  const std::string name = names[static_cast<std::size_t>(options.communicator)];
#ifndef RINGATTN_HAVE_MPI
  if (options.communicator == CommunicatorKind::mpi || options.communicator == CommunicatorKind::nccl) {
    throw UsageError("--communicator is '" + name +
                     "', and this build has no MPI; allowed are auto, self and threads");
  }
  if (launcher.size > 1) {
    throw UsageError("a launcher started " + std::to_string(launcher.size) +
                     " processes, and this build has no MPI to join them");
  }
#endif
  const bool one_process =
      options.communicator == CommunicatorKind::self || options.communicator == CommunicatorKind::threads;
  if (one_process && launcher.size > 1) {
    throw UsageError("--communicator is '" + name + "', and a launcher started " +
                     std::to_string(launcher.size) +
                     " processes, each of which would work alone; allowed are auto, mpi and nccl");
  }
}

ExitCode run_mpi_ranks([[maybe_unused]] const RankProgram& program) {
#ifdef RINGATTN_HAVE_MPI
  const MpiSession session;
  const auto another = [] { return std::shared_ptr<Communicator>(make_mpi_communicator(MPI_COMM_WORLD)); };
  const std::shared_ptr<Communicator> comm = another();
  const LastWords printed_by_abort = [](const Communicator&, const Failure&) {};
  return end_of_rank(*comm, printed_by_abort, [&] {
    program(comm, {.ranks_are_threads = false,
                   .local_rank = local_rank_of(MPI_COMM_WORLD),
                   .another = another,
                   .claims_device_memory = mpi_claims_device_memory});
  });
#else
  throw UsageError("this build has no MPI");
#endif
}

ExitCode run_self_rank(const RankProgram& program) {
  const std::shared_ptr<Communicator> comm = make_self_communicator();
  return end_of_rank(*comm, print_failure, [&] { program(comm, {}); });
}

ExitCode run_thread_ranks(int ranks, const RankProgram& program) {
  // The first rank to fail explains the end; what the others then meet is its echo.
  std::mutex mutex;
  std::optional<ExitCode> first;
  const LastWords last_words = [&](const Communicator& comm, const Failure& failure) {
    const std::lock_guard lock(mutex);
    if (first) return;
    first = failure.code;
    print_failure(comm, failure);
  };
  ExitCode rank0 = ExitCode::ok;
  ringattn::run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
    const ExitCode code = end_of_rank(
        *comm, last_words, [&] { program(comm, {.ranks_are_threads = true, .local_rank = comm->rank()}); });
    if (comm->rank() == 0) rank0 = code;
  });
  return first.value_or(rank0);
}

std::string mpi_library() {
#ifdef RINGATTN_HAVE_MPI
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  return std::string(text.data(), static_cast<std::size_t>(length));
#else
  return "";
#endif
}

}  // namespace ringattn::launch
