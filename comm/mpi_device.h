// The ring over MPI with blocks in device memory, which MPI is given as they are where it can carry them.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "comm/device.h"
#include "comm/staged.h"

namespace ringattn {

struct MpiDeviceOptions {
  // Whether the transport claims to carry device memory, for MPI mpi_claims_device_memory() of
  // comm/mpi_device_claim.h. False: the trial is not made, and blocks are staged.
  bool claimed = false;
  // Longest that the trial may take, more than 0.
  std::chrono::milliseconds patience{60'000};
  StagedOptions staged{};
};

struct MpiDevice {
  std::unique_ptr<DeviceCommunicator> comm;  // "direct(mpi)" or "staged(mpi)"
  std::string why_staged;                    // the same on every rank; empty: blocks go to MPI as they are
};

// Collective, with the same options on every rank but for `claimed`. `make_host` makes a communicator of
// these ranks (make_mpi_communicator of the caller's, say); it is called once or, if all ranks claim, twice:
// a trial on the second decides, since one that fails leaves its communicator of no further use. `stream` and
// the current device as for make_nccl_communicator.
//
// As with staged blocks, the host works: a transfer is given to MPI in test(), arrived() or wait(), once the
// stream has done what it had been given when the transfer was started, and wait() returns when MPI has
// ended it. Nothing else is then to be waited for: what MPI has received in device memory, work that is
// queued from then on may read.
//
// Throws UsageError if `make_host` is empty or makes none, `stream` is null or an option is out of range;
// what make_staged throws; CommError where the ranks do not meet.
MpiDevice make_mpi_device(const std::function<std::shared_ptr<Communicator>()>& make_host, void* stream,
                          const MpiDeviceOptions& options = {});

}  // namespace ringattn
