#include "comm/faulty.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// The top bit of an exponent, wherever the block holds little-endian floats of 2 or 4 bytes: the highest bit
// but the sign of the last byte of an element near the middle. A flip there is a wrong answer anybody sees.
void flip_one_bit(std::vector<std::byte>& block) {
  const std::size_t middle = std::min((block.size() / 2) | 3, block.size() - 1);
  block[middle] ^= std::byte{0x40};
}

// The words of a rank that has not begun: everything is pending.
std::string timeout_before_start(const Communicator& comm, int hop, const Route& route,
                                 Clock::duration waited, std::size_t to_next, std::size_t from_prev) {
  std::optional<PendingTransfer> receive, send;
  if (from_prev > 0) receive = {.peer = sender_to(comm.rank(), route, comm.size()), .bytes = from_prev};
  if (to_next > 0) send = {.peer = receiver_of(comm.rank(), route, comm.size()), .bytes = to_next};
  return timeout_text(comm.rank(), hop, waited, receive, send);
}

// A shift that starts late, of a block that may be a changed copy of the caller's.
class LateShift final : public Shift {
 public:
  LateShift(std::shared_ptr<Communicator> inner, int hop, const Route& route, Deadline start,
            std::vector<std::byte> changed, std::span<const std::byte> to_next,
            std::span<std::byte> from_prev)
      : comm_(std::move(inner)),
        hop_(hop),
        route_(route),
        start_(start),
        changed_(std::move(changed)),
        to_next_(changed_.empty() ? to_next : changed_),
        from_prev_(from_prev) {
    start_if_due();
  }

  // Only asks the clock before the start: a poll between tiles must not sleep.
  bool test() override { return start_if_due() && shift_->test(); }

  void wait(Deadline deadline) override {
    const Deadline began = Clock::now();
    if (!start_if_due()) {
      std::this_thread::sleep_until(std::min(start_, deadline));
      if (!start_if_due()) {
        throw CommError(timeout_before_start(*comm_, hop_, route_, Clock::now() - began, to_next_.size(),
                                             from_prev_.size()));
      }
    }
    shift_->wait(deadline);
  }

  std::size_t arrived() const override { return shift_ ? shift_->arrived() : 0; }

 private:
  bool start_if_due() {
    if (!shift_ && Clock::now() >= start_) shift_ = comm_->shift(hop_, to_next_, from_prev_, route_);
    return shift_ != nullptr;
  }

  std::shared_ptr<Communicator> comm_;
  int hop_;
  Route route_;
  Deadline start_;
  std::vector<std::byte> changed_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  std::unique_ptr<Shift> shift_;
};

// Never touches the communicator below, so that its peers see what they see of a rank that stands still.
class VanishedShift final : public Shift {
 public:
  VanishedShift(std::shared_ptr<Communicator> comm, int hop, const Route& route, std::size_t to_next,
                std::size_t from_prev)
      : comm_(std::move(comm)), hop_(hop), route_(route), to_next_(to_next), from_prev_(from_prev) {}

  bool test() override { return to_next_ == 0 && from_prev_ == 0; }
  std::size_t arrived() const override { return 0; }

  void wait(Deadline deadline) override {
    if (test()) return;
    const Deadline began = Clock::now();
    std::this_thread::sleep_until(deadline);
    throw CommError(timeout_before_start(*comm_, hop_, route_, Clock::now() - began, to_next_, from_prev_));
  }

 private:
  std::shared_ptr<Communicator> comm_;
  int hop_;
  Route route_;
  std::size_t to_next_, from_prev_;
};

class Faulty final : public Communicator {
 public:
  Faulty(std::shared_ptr<Communicator> inner, std::vector<Fault> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  std::string name() const override { return "faulty(" + inner_->name() + ")"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  SentCount sent() const override { return inner_->sent(); }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }

 private:
  // Faults of one hop add up: a block may be truncated, corrupted and late. An empty block has nothing to
  // truncate or corrupt.
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    std::chrono::milliseconds delay{0};
    std::vector<std::byte> changed;
    bool touched = false;
    for (const Fault& fault : faults_) {
      if (fault.hop != hop || fault.channel != route.channel) continue;
      touched = true;
      switch (fault.kind) {
        case Fault::Kind::delay:
          delay += fault.delay;
          break;
        case Fault::Kind::truncate:
          if (!to_next.empty()) to_next = to_next.first(to_next.size() - 1);
          break;
        case Fault::Kind::corrupt:
          changed.assign(to_next.begin(), to_next.end());
          break;
        case Fault::Kind::fail:
          throw CommError(place(rank(), hop) + ": failed on purpose");
        case Fault::Kind::die:
          _exit(137);  // as if killed: nothing is flushed, nobody is told
        case Fault::Kind::vanish:
          return std::make_unique<VanishedShift>(inner_, hop, route, to_next.size(), from_prev.size());
      }
    }
    // The usual case stays what it was without this decorator.
    if (!touched) return inner_->shift(hop, to_next, from_prev, route);
    changed.resize(std::min(changed.size(), to_next.size()));  // truncated after it was copied
    if (!changed.empty()) flip_one_bit(changed);
    return std::make_unique<LateShift>(inner_, hop, route, Clock::now() + delay, std::move(changed), to_next,
                                       from_prev);
  }

  std::shared_ptr<Communicator> inner_;
  std::vector<Fault> faults_;
};

}  // namespace

std::unique_ptr<Communicator> make_faulty(std::shared_ptr<Communicator> inner, std::vector<Fault> faults) {
  for (const Fault& fault : faults) {
    if (fault.hop < 0) {
      throw UsageError("Fault: hop is " + std::to_string(fault.hop) + ", allowed is 0 or more");
    }
    if (fault.delay.count() < 0) {
      throw UsageError("Fault: delay is " + std::to_string(fault.delay.count()) +
                       " ms, allowed is 0 or more");
    }
  }
  return std::make_unique<Faulty>(std::move(inner), std::move(faults));
}

}  // namespace ringattn
