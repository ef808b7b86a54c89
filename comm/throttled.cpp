#include "comm/throttled.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <thread>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Far enough for any link worth naming, and far from overflow of the clock.
constexpr double kLongestSeconds = 1e9;

Clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kLongestSeconds)));
}

// When the first and the last byte of a shift come.
struct Travel {
  Deadline first, last;

  std::size_t arrived(std::size_t bytes) const {
    const auto now = Clock::now();
    if (now >= last) return bytes;
    if (now <= first) return 0;
    const double share =
        std::chrono::duration<double>(now - first) / std::chrono::duration<double>(last - first);
    return std::min(bytes, static_cast<std::size_t>(share * static_cast<double>(bytes)));
  }
};

class ThrottledShift final : public Shift {
 public:
  // `where`: "rank 1, hop 3", for the words of an error.
  ThrottledShift(std::unique_ptr<Shift> inner, const Travel& travel, std::size_t bytes, std::string where)
      : inner_(std::move(inner)), travel_(travel), bytes_(bytes), where_(std::move(where)) {}

  // Asks below even while the link holds the block back: the bytes travel meanwhile.
  bool test() override { return inner_->test() && Clock::now() >= travel_.last; }

  void wait(Deadline deadline) override {
    const Deadline start = Clock::now();
    // Both must be over, in either order; the peers' time is waited for first, since only that can fail.
    inner_->wait(deadline);
    std::this_thread::sleep_until(std::min(travel_.last, deadline));
    if (Clock::now() >= travel_.last) return;
    throw CommError(where_ + ": timed out after " + seconds_text(Clock::now() - start) + " waiting for " +
                    std::to_string(bytes_) + " bytes on a throttled link, which takes another " +
                    seconds_text(travel_.last - Clock::now()));
  }

  std::size_t arrived() const override { return std::min(inner_->arrived(), travel_.arrived(bytes_)); }

 private:
  std::unique_ptr<Shift> inner_;
  Travel travel_;
  std::size_t bytes_;
  std::string where_;
};

class Throttled final : public Communicator {
 public:
  Throttled(std::shared_ptr<Communicator> inner, Link link) : inner_(std::move(inner)), link_(link) {}

  std::string name() const override { return "throttled(" + inner_->name() + ")"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  SentCount sent() const override { return inner_->sent(); }

  // Small things are not throttled: this is a link for blocks.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }

 private:
  // An empty shift takes no time: nothing travels.
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    const Deadline start = Clock::now();
    const std::size_t bytes = std::max(to_next.size(), from_prev.size());
    auto inner = inner_->shift(hop, to_next, from_prev, route);
    if (bytes == 0) return inner;
    return std::make_unique<ThrottledShift>(std::move(inner), travel(start, bytes), bytes,
                                            place(rank(), hop));
  }

  Travel travel(Deadline start, std::size_t bytes) {
    const double rate = link_.gigabits_per_second * 1e9 / 8;
    const double seconds = rate > 0 ? static_cast<double>(bytes) / rate : 0;
    const Deadline begin = std::max(start, free_);
    free_ = begin + duration_of(seconds);
    const auto latency = duration_of(link_.latency_us * 1e-6);
    return {.first = begin + latency, .last = free_ + latency};
  }

  std::shared_ptr<Communicator> inner_;
  Link link_;
  Deadline free_{};  // when the link has carried all that was started
};

void check(const char* name, double value) {
  if (std::isfinite(value) && value >= 0) return;
  std::ostringstream text;
  text << "Link: " << name << " is " << value << ", allowed is any finite number from 0";
  throw UsageError(text.str());
}

}  // namespace

std::unique_ptr<Communicator> make_throttled(std::shared_ptr<Communicator> inner, Link link) {
  check("gigabits_per_second", link.gigabits_per_second);
  check("latency_us", link.latency_us);
  return std::make_unique<Throttled>(std::move(inner), link);
}

}  // namespace ringattn
