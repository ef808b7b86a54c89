// The ring over MPI: non-blocking point-to-point on an own duplicate of the caller's communicator.
#pragma once
#include <mpi.h>

#include <memory>

#include "comm/communicator.h"

namespace ringattn {

struct MpiOptions {
  // Blocks travel in chunks of this many bytes (1 .. 2^31-1): small enough for an int count, and for a test()
  // between tiles that does not copy a whole block. Bandwidth does not depend on it from 256 KiB up, see
  // "Link" in bench/README.md.
  std::size_t chunk_bytes = std::size_t{2} << 20;
  // Chunks under way at once in each direction (1 or more). Memory does not depend on it.
  int chunks_in_flight = 4;
};

// Collective over `comm`, with the same options on every rank. `comm` is duplicated: the caller's own traffic
// and error handler are left alone, and any sub-communicator will do. MPI must be initialised with at least
// MPI_THREAD_FUNNELED and outlive the result. Throws UsageError, before anything collective, if it is not, if
// an option is out of range, and on MPI_COMM_NULL or an intercommunicator.
//
// After a CommError the job should end: MPI takes back no message, so a peer that comes late may still read
// the block that was being sent from memory that has other contents by then.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, const MpiOptions& options = {});

}  // namespace ringattn
