// The ring over MPI: non-blocking point-to-point on an own duplicate of the caller's communicator.
#pragma once
#include <mpi.h>

#include <memory>

#include "comm/communicator.h"

namespace ringattn {

struct MpiOptions {
  // Blocks travel in chunks of this many bytes (1 .. 2^31-1). Chunks that stay in cache have twice the
  // bandwidth of one large message on shared memory; see bench/README.md.
  std::size_t chunk_bytes = std::size_t{2} << 20;
};

// Collective over `comm`, which is duplicated: the caller's own traffic and error handler are left alone, and
// any sub-communicator will do. MPI must be initialised with at least MPI_THREAD_FUNNELED and outlive the
// result.
std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, const MpiOptions& options = {});

}  // namespace ringattn
