// The one interface between the ring and the network: bytes to the next rank, bytes from the previous one,
// small blobs to everybody. Knows nothing of attention. No wait is without a deadline.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringattn {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// One block on its way to the next rank and one from the previous rank.
class Shift {
 public:
  virtual ~Shift() = default;
  // True when both are done. Also makes them progress: call it between tiles. Throws CommError like wait().
  virtual bool test() = 0;
  // Returns when both are done: the block sent may be overwritten, the one received may be read.
  // Throws CommError at the deadline, naming this rank, the hop and every pending operation with peer and
  // size; on a size that differs from what was expected, naming both; and when a peer is known to have
  // failed.
  virtual void wait(Deadline deadline) = 0;
};

// Sent since construction, by shift() alone. Empty blocks are not messages.
struct SentCount {
  std::uint64_t bytes = 0, messages = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::string name()
      const = 0;  // "self", "threads", "mpi"; decorators add themselves: "throttled(mpi)"
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Starts sending `to_next` to rank+1 and receiving `from_prev` from rank-1 (mod size; with one rank the
  // block is copied). Both spans stay untouched by the caller until the shift is done. Either may be empty:
  // then nothing travels in that direction. Both ends of a transfer use the same hop number. One shift at a
  // time per object.
  [[nodiscard]] virtual std::unique_ptr<Shift> shift(int hop, std::span<const std::byte> to_next,
                                                     std::span<std::byte> from_prev) = 0;

  // Every rank's blob, in rank order. Blobs may differ in size. For small things only.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                         Deadline deadline) = 0;

  // Tells every rank that this one cannot go on. mpi: prints `why` and ends the job with that exit code; does
  // not return. threads: every pending or later operation of the group throws CommError with `why`.
  virtual void abort(int exit_code, const std::string& why) noexcept = 0;

  virtual SentCount sent() const = 0;
};

}  // namespace ringattn
