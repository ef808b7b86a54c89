// A shift over MPI: a header and the chunks of a block, in each direction. Internal to comm/.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/mpi_endpoint.h"
#include "comm/mpi_stream.h"

namespace ringattn {

// Goes before the chunks of every block, which are received only if it says what is expected. Without it a
// block that is too short by whole chunks, or of another hop, would show at the deadline only, as a message
// that does not come; and one that is too long would overwrite memory, see accept() in mpi_shift.cpp. One
// small message a block costs about a microsecond.
struct BlockHeader {
  std::uint64_t hop = 0;
  std::uint64_t bytes = 0;
  std::uint64_t chunk_bytes = 0;
};

class MpiShift final : public Shift {
 public:
  MpiShift(std::shared_ptr<MpiEndpoint> endpoint, int hop, std::span<const std::byte> to_next,
           std::span<std::byte> from_prev, const Route& route);
  // An unfinished shift is withdrawn and its communicator is of no further use: messages of this hop may
  // still be on their way.
  ~MpiShift() override;
  MpiShift(const MpiShift&) = delete;
  MpiShift& operator=(const MpiShift&) = delete;

  // Posts the headers and the first chunks to send. Apart from the constructor, so that the destructor takes
  // care of what has been posted when it throws.
  void start();
  bool test() override;
  void wait(Deadline deadline) override;
  std::size_t arrived() const override { return in_.moved(); }  // chunks end in order

 private:
  void check(int code, const char* call) const;
  bool advance();
  bool accept();
  void check_header() const;
  std::string timeout(Clock::duration waited) const;
  void ended() { end_->running_hop[static_cast<std::size_t>(channel_)].reset(); }

  std::shared_ptr<MpiEndpoint> end_;
  int hop_, channel_;
  int next_, previous_;  // where the block sent goes to, and where the one received comes from
  BlockHeader header_out_, header_in_;
  MPI_Request header_send_ = MPI_REQUEST_NULL, header_receive_ = MPI_REQUEST_NULL;
  ChunkStream<const std::byte> out_;
  ChunkStream<std::byte> in_;
  bool header_checked_ = false;
  bool done_ = false;
};

}  // namespace ringattn
