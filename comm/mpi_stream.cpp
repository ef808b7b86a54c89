#include "comm/mpi_stream.h"

#include <algorithm>
#include <type_traits>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {

template <class Byte>
ChunkStream<Byte>::ChunkStream(const MpiEndpoint& endpoint, int hop, int channel, std::span<Byte> block,
                               int peer)
    : endpoint_(endpoint),
      hop_(hop),
      tag_(endpoint.data_tag(hop, channel)),
      block_(block),
      peer_(peer),
      chunks_(block.size(), endpoint.options.chunk_bytes),
      window_(std::min(static_cast<std::size_t>(endpoint.options.chunks_in_flight), chunks_.count()),
              MPI_REQUEST_NULL) {}

template <class Byte>
void ChunkStream<Byte>::start() {
  while (posted_ < window_.size()) post_next();
}

template <class Byte>
void ChunkStream<Byte>::post_next() {
  Byte* bytes = block_.data() + chunks_.offset(posted_);
  const int size = chunks_.size(posted_);
  MPI_Request& request = window_[posted_ % window_.size()];
  if constexpr (std::is_const_v<Byte>) {
    check(MPI_Isend(bytes, size, MPI_BYTE, peer_, tag_, endpoint_.comm.get(), &request), "MPI_Isend");
  } else {
    check(MPI_Irecv(bytes, size, MPI_BYTE, peer_, tag_, endpoint_.comm.get(), &request), "MPI_Irecv");
  }
  ++posted_;
}

template <class Byte>
bool ChunkStream<Byte>::step() {
  if (done()) return false;
  int ended = 0;
  MPI_Status status;
  check(MPI_Test(&window_[ended_ % window_.size()], &ended, &status), "MPI_Test");
  if (ended == 0) return false;
  if constexpr (!std::is_const_v<Byte>) check_size(status);
  ++ended_;
  if (posted_ < chunks_.count()) post_next();
  return true;
}

template <class Byte>
std::size_t ChunkStream<Byte>::moved() const {
  return done() ? block_.size() : chunks_.offset(ended_);
}

template <class Byte>
void ChunkStream<Byte>::check(int code, const char* call) const {
  if (code == MPI_SUCCESS) return;
  check_mpi(code, place(endpoint_.rank, hop_) + ", rank " + std::to_string(peer_), call);
}

// The header has promised the size, so this is the last line of defence. A longer message is an error of
// MPI_Test already (MPI_ERR_TRUNCATE); a shorter one is none, and must not pass for a block.
template <class Byte>
void ChunkStream<Byte>::check_size(const MPI_Status& status) const {
  int size = 0;
  check(MPI_Get_count(&status, MPI_BYTE, &size), "MPI_Get_count");
  if (size == chunks_.size(ended_)) return;
  throw CommError(size_text(endpoint_.rank, hop_, peer_, static_cast<std::size_t>(size),
                            static_cast<std::size_t>(chunks_.size(ended_))) +
                  " in chunk " + std::to_string(ended_));
}

template class ChunkStream<std::byte>;
template class ChunkStream<const std::byte>;

}  // namespace ringattn
