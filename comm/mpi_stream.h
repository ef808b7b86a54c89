// One block between this rank and one peer, as chunks in order, a few of them at a time. Internal to comm/.
#pragma once
#include <mpi.h>

#include <span>
#include <vector>

#include "comm/chunks.h"
#include "comm/mpi_endpoint.h"

namespace ringattn {

// Byte is `const std::byte` for a block that is sent and `std::byte` for one that is received.
//
// Messages between two ranks with one tag do not overtake each other, so chunk i of the sender always meets
// receive i, whatever the sizes of the two windows. So only the oldest request needs to be asked, and as it
// ends the next chunk is posted in its place; the others in the window keep the peer busy while this rank
// computes a tile.
template <class Byte>
class ChunkStream {
 public:
  // `hop` is for the words of an error.
  ChunkStream(const MpiEndpoint& endpoint, int hop, int channel, std::span<Byte> block, int peer);

  void start();  // posts the first chunks
  // True if a chunk has ended; the next one is posted then. Throws CommError, also on a chunk of a wrong
  // size.
  bool step();
  bool done() const { return ended_ == chunks_.count(); }
  std::size_t size() const { return block_.size(); }
  std::size_t moved() const;                             // bytes of the chunks that have ended
  std::span<MPI_Request> requests() { return window_; }  // MPI_REQUEST_NULL where none is pending

 private:
  void post_next();
  void check(int code, const char* call) const;
  void check_size(const MPI_Status& status) const;

  const MpiEndpoint& endpoint_;
  int hop_, tag_;
  std::span<Byte> block_;
  int peer_;
  Chunks chunks_;
  std::size_t posted_ = 0, ended_ = 0;
  std::vector<MPI_Request> window_;  // chunk i at i mod its size
};

}  // namespace ringattn
