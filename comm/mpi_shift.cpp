#include "comm/mpi_shift.h"

#include <optional>

#include "comm/last_words.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {

MpiShift::MpiShift(std::shared_ptr<MpiEndpoint> endpoint, int hop, std::span<const std::byte> to_next,
                   std::span<std::byte> from_prev, const Route& route)
    : end_(std::move(endpoint)),
      hop_(hop),
      channel_(route.channel),
      next_(receiver_of(end_->rank, route, end_->size)),
      previous_(sender_to(end_->rank, route, end_->size)),
      header_out_{.hop = static_cast<std::uint64_t>(hop),
                  .bytes = to_next.size(),
                  .chunk_bytes = end_->options.chunk_bytes},
      out_(*end_, hop, channel_, to_next, next_),
      in_(*end_, hop, channel_, from_prev, previous_),
      header_checked_(from_prev.empty()) {}

MpiShift::~MpiShift() {
  if (done_) return;
  withdraw({&header_receive_, 1}, {&header_send_, 1});
  withdraw(in_.requests(), out_.requests());
  end_->failed(place(end_->rank, hop_) + ": the shift was given up");
  ended();
}

void MpiShift::start() {
  constexpr int kSize = sizeof(BlockHeader);
  const int tag = MpiEndpoint::header_tag(channel_);
  const MPI_Comm comm = end_->comm.get();
  if (!in_.done()) {
    check(MPI_Irecv(&header_in_, kSize, MPI_BYTE, previous_, tag, comm, &header_receive_),
          "MPI_Irecv of the header");
  }
  if (!out_.done()) {
    check(MPI_Isend(&header_out_, kSize, MPI_BYTE, next_, tag, comm, &header_send_),
          "MPI_Isend of the header");
    out_.start();
  }
}

// The words are put together only when they are needed: test() is called often.
void MpiShift::check(int code, const char* call) const {
  if (code != MPI_SUCCESS) check_mpi(code, place(end_->rank, hop_), call);
}

bool MpiShift::test() {
  if (done_) return true;
  // A failure is final: whoever asks again hears of it again, and nobody takes a half block for a whole one.
  if (!end_->failure.empty()) throw CommError(end_->failure);
  try {
    done_ = advance();
  } catch (const CommError& error) {
    end_->failed(error.what());
    throw;
  }
  if (done_) ended();
  return done_;
}

void MpiShift::wait(Deadline deadline) {
  const Deadline start = Clock::now();
  const bool in_time = poll_until(
      deadline, [this] { return test(); }, [this] { return in_.moved() + out_.moved(); });
  if (in_time) return;
  end_->failed(timeout(Clock::now() - start));
  throw CommError(end_->failure);
}

// The directions take turns, a chunk at a time. A loop that first drains one of them keeps the other still
// for as long as the peer keeps up, and halves the bandwidth (2.2 instead of 3.8 GB/s, see bench/README.md).
// At most a window of chunks a call, so that a kernel that polls gets back to its tiles.
bool MpiShift::advance() {
  for (int turn = 0; turn < end_->options.chunks_in_flight; ++turn) {
    const bool received = accept() && in_.step();
    const bool sent = out_.step();
    if (!received && !sent) break;
  }
  int header_out = 0;
  check(MPI_Test(&header_send_, &header_out, MPI_STATUS_IGNORE), "MPI_Test of the header");
  return in_.done() && out_.done() && header_out != 0;
}

// True once the header has come and was right. Only then are receives posted: a message longer than its
// receive is an error in MPI, but Open MPI 4.1.4 has written all of it by then, past the end of the buffer.
bool MpiShift::accept() {
  if (header_checked_) return true;
  int come = 0;
  check(MPI_Test(&header_receive_, &come, MPI_STATUS_IGNORE), "MPI_Test of the header");
  if (come == 0) return false;
  check_header();
  in_.start();
  header_checked_ = true;
  return true;
}

// The hop comes first: a block of another hop is often of another size, too, and the hop is the reason.
void MpiShift::check_header() const {
  if (header_in_.hop != header_out_.hop) {
    throw CommError(hop_text(end_->rank, hop_, previous_, static_cast<int>(header_in_.hop)));
  }
  const std::uint64_t expected = in_.size();
  if (header_in_.bytes != expected) {
    throw CommError(size_text(end_->rank, hop_, previous_, header_in_.bytes, expected));
  }
  if (header_in_.chunk_bytes != header_out_.chunk_bytes) {
    throw CommError(place(end_->rank, hop_) + ": rank " + std::to_string(previous_) + " sends chunks of " +
                    std::to_string(header_in_.chunk_bytes) + " bytes, " +
                    std::to_string(header_out_.chunk_bytes) + " are expected");
  }
}

// A small block may count as taken although its receiver stands still: MPI has buffered it.
std::string MpiShift::timeout(Clock::duration waited) const {
  std::optional<PendingTransfer> receive, send;
  if (!in_.done()) receive = {.peer = previous_, .bytes = in_.size(), .moved = in_.moved()};
  const bool header_taken = header_send_ == MPI_REQUEST_NULL;
  if (!out_.done() || !header_taken) send = {.peer = next_, .bytes = out_.size(), .moved = out_.moved()};
  return timeout_text(end_->rank, hop_, waited, receive, send);
}

}  // namespace ringattn
