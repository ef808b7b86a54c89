// Blobs of different sizes from everybody to everybody over MPI. Internal to comm/.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "comm/mpi_endpoint.h"

namespace ringattn {

// Collective. Point-to-point messages, because MPI does not tell who is missing in a collective operation and
// does not let a rank leave one at a deadline; and Open MPI's own non-blocking all-gather sends the same
// (size - 1) messages a rank. First the sizes go round as a roll call, then the blobs. Throws CommError at
// the deadline naming the ranks that are missing, and on every rank alike if the blobs together have more
// than 2^31-1 bytes.
std::vector<std::vector<std::byte>> gather(const MpiEndpoint& endpoint, std::span<const std::byte> mine,
                                           Deadline deadline);

}  // namespace ringattn
