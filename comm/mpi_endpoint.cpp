#include "comm/mpi_endpoint.h"

#include <array>
#include <chrono>
#include <climits>
#include <thread>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Long enough for a chunk that is being copied, short against every deadline.
constexpr std::chrono::milliseconds kMomentToEnd{100};

void check_initialised() {
  if (!mpi_is_running()) {
    throw UsageError("make_mpi_communicator: MPI is not initialised, or finalized already");
  }
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "make_mpi_communicator", "MPI_Query_thread");
  if (level < MPI_THREAD_FUNNELED) {
    throw UsageError("make_mpi_communicator: MPI was initialised with thread level " + std::to_string(level) +
                     ", needed is MPI_THREAD_FUNNELED (" + std::to_string(int{MPI_THREAD_FUNNELED}) + ")");
  }
}

// All that can be wrong is found before anything collective, so that a rank that throws leaves no peer
// waiting in MPI_Comm_dup: they throw as well, since options are the same everywhere.
MPI_Comm usable(MPI_Comm original, const MpiOptions& options) {
  check_initialised();
  if (options.chunk_bytes < 1 || options.chunk_bytes > INT_MAX) {
    throw UsageError("MpiOptions: chunk_bytes is " + std::to_string(options.chunk_bytes) +
                     ", allowed is 1 to 2147483647");
  }
  if (options.chunks_in_flight < 1) {
    throw UsageError("MpiOptions: chunks_in_flight is " + std::to_string(options.chunks_in_flight) +
                     ", allowed is 1 or more");
  }
  if (original == MPI_COMM_NULL) throw UsageError("make_mpi_communicator: comm is MPI_COMM_NULL");
  int between_groups = 0;
  check_mpi(MPI_Comm_test_inter(original, &between_groups), "make_mpi_communicator", "MPI_Comm_test_inter");
  if (between_groups != 0) throw UsageError("make_mpi_communicator: comm is an intercommunicator");
  return original;
}

// Asks every request, also after one that is pending: each question moves all of them.
bool all_ended(std::span<MPI_Request> requests) {
  int done = 1;
  for (MPI_Request& request : requests) {
    int one = 1;
    // An error ends a request too, and nobody is left to hear of it.
    if (request != MPI_REQUEST_NULL) MPI_Test(&request, &one, MPI_STATUS_IGNORE);
    if (one == 0) done = 0;
  }
  return done != 0;
}

}  // namespace

bool mpi_is_running() {
  int initialised = 0, finalized = 0;
  return MPI_Initialized(&initialised) == MPI_SUCCESS && MPI_Finalized(&finalized) == MPI_SUCCESS &&
         initialised != 0 && finalized == 0;
}

Duplicate::Duplicate(MPI_Comm original) {
  check_mpi(MPI_Comm_dup(original, &comm_), "make_mpi_communicator", "MPI_Comm_dup");
  // The duplicate inherits the caller's handler, which by default ends the job without a word of ours.
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

Duplicate::~Duplicate() {
  if (!abandoned_ && comm_ != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm_);
}

MpiEndpoint::MpiEndpoint(MPI_Comm original, const MpiOptions& wanted)
    : comm(usable(original, wanted)), options(wanted) {
  check_mpi(MPI_Comm_rank(comm.get(), &rank), "make_mpi_communicator", "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm.get(), &size), "make_mpi_communicator", "MPI_Comm_size");
  // The standard hangs this attribute on MPI_COMM_WORLD, not on duplicates.
  int* bound = nullptr;
  int known = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &known), "make_mpi_communicator",
            "MPI_Comm_get_attr");
  if (known != 0) largest_tag = *bound;
}

void MpiEndpoint::failed(const std::string& why) {
  if (failure.empty()) failure = why;
  comm.abandon();
}

void check_mpi(int code, const std::string& where, const char* what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw CommError(where + ": " + what + ": " + text.data());
}

void withdraw(std::span<MPI_Request> receives, std::span<MPI_Request> sends) noexcept {
  if (!mpi_is_running()) return;
  for (MPI_Request& request : receives) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  // A receive that has met its message cannot be cancelled any more; memory it writes to must outlive it.
  const Deadline limit = Clock::now() + kMomentToEnd;
  while (true) {
    const bool ended = all_ended(receives) && all_ended(sends);
    if (ended || Clock::now() >= limit) break;
    std::this_thread::yield();
  }
  for (const std::span<MPI_Request> requests : {receives, sends}) {
    for (MPI_Request& request : requests) {
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
  }
}

}  // namespace ringattn
