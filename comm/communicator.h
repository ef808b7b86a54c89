// The one interface between the ring and the network: bytes to another rank, bytes from a third one, small
// blobs to everybody. Knows nothing of attention. No wait is without a deadline.
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

// One block on its way to another rank and one from a third.
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
  // Leading bytes of the block received that may be read already; grows in test() and wait() alone, and is
  // the whole block once test() has returned true.
  virtual std::size_t arrived() const = 0;
};

// Which way a shift goes: to rank + distance, from rank - distance, modulo size. Shifts of different channels
// run side by side; what is sent on one is never taken for what is sent on the other.
struct Route {
  int distance = 1;
  int channel = 0;
  static constexpr int kChannels = 2;
  friend bool operator==(const Route&, const Route&) = default;
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

  // Starts sending `to_next` and receiving `from_prev` along the route, by default from rank-1 to rank+1
  // (where that is the rank itself, the block is copied). Both spans stay untouched by the caller until the
  // shift is done, but for the bytes that have arrived(). Either may be empty: then nothing travels in that
  // direction. Both ends of a transfer use the same hop number and route. One shift at a time per channel.
  // Throws UsageError if the channel is not one of Route::kChannels.
  [[nodiscard]] std::unique_ptr<Shift> shift(int hop, std::span<const std::byte> to_next,
                                             std::span<std::byte> from_prev, Route route = {}) {
    return start_shift(hop, to_next, from_prev, route);
  }

  // Every rank's blob, in rank order. Blobs may differ in size. For small things only.
  virtual std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                         Deadline deadline) = 0;

  // Tells every rank that this one cannot go on. mpi: prints `why` and ends the job with that exit code; does
  // not return. threads: every pending or later operation of the group throws CommError with `why`.
  virtual void abort(int exit_code, const std::string& why) noexcept = 0;

  virtual SentCount sent() const = 0;

 private:
  virtual std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                             std::span<std::byte> from_prev, const Route& route) = 0;
};

}  // namespace ringattn
