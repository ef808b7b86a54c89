// One rank's side of the MPI ring, and the MPI handles behind it. Internal to comm/.
#pragma once
#include <mpi.h>

#include <array>
#include <optional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "comm/mpi.h"

namespace ringattn {

// Everything on the duplicate has one of these tags. The channels have headers of their own from kHeaderTag
// on, and take turns in the tags from kFirstDataTag on, one a hop, wrapped where the implementation's largest
// tag comes first (the standard promises 32,767, Open MPI has 2^31-1). Hops that share a tag are never in
// flight together, and the header of each block names the true hop.
enum : int {
  kRollCallTag = 0,
  kBlobTag = 1,
  kHeaderTag = 2,
  kFirstDataTag = kHeaderTag + Route::kChannels,
};

// An own duplicate of a communicator that returns errors instead of ending the job.
class Duplicate {
 public:
  explicit Duplicate(MPI_Comm original);  // collective
  ~Duplicate();
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;
  MPI_Comm get() const { return comm_; }
  // After a failure peers may still have messages under way, so the handle is left to the end of the process.
  void abandon() { abandoned_ = true; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool abandoned_ = false;
};

// Used by one thread at a time, and shared by a communicator and its running shift.
struct MpiEndpoint {
  MpiEndpoint(MPI_Comm original, const MpiOptions& options);

  Duplicate comm;
  MpiOptions options;
  int rank = 0, size = 1;
  int largest_tag = 32767;
  SentCount sent;
  std::string failure;                                           // of an earlier operation, empty if none
  std::array<std::optional<int>, Route::kChannels> running_hop;  // of the shifts under way, by channel

  static int header_tag(int channel) { return kHeaderTag + channel; }
  int data_tag(int hop, int channel) const {
    const int hops = (largest_tag - kFirstDataTag + 1) / Route::kChannels;
    return kFirstDataTag + hop % hops * Route::kChannels + channel;
  }
  void failed(const std::string& why);
};

// Between MPI_Init and MPI_Finalize.
bool mpi_is_running();

// Throws CommError "WHERE: WHAT: text of MPI" if `code` is an error.
void check_mpi(int code, const std::string& where, const char* what);

// Ends requests that will not be completed by their owner any more: receives are cancelled, and both kinds
// get a moment to end (MPI cannot call back a message that is being copied). What is still pending after it
// is freed; the peer is dead or stopped then, and the job about to end. All become MPI_REQUEST_NULL.
void withdraw(std::span<MPI_Request> receives, std::span<MPI_Request> sends) noexcept;

}  // namespace ringattn
