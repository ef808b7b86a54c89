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

Clock::duration travel_time(const Link& link, std::size_t bytes) {
  double seconds = link.latency_us * 1e-6;
  if (link.gigabits_per_second > 0) seconds += static_cast<double>(bytes) * 8e-9 / link.gigabits_per_second;
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds, kLongestSeconds)));
}

class ThrottledShift final : public Shift {
 public:
  // `where`: "rank 1, hop 3", for the words of an error.
  ThrottledShift(std::unique_ptr<Shift> inner, Deadline arrival, std::size_t bytes, std::string where)
      : inner_(std::move(inner)), arrival_(arrival), bytes_(bytes), where_(std::move(where)) {}

  // Asks below even while the link holds the block back: the bytes travel meanwhile.
  bool test() override { return inner_->test() && Clock::now() >= arrival_; }

  void wait(Deadline deadline) override {
    const Deadline start = Clock::now();
    // Both must be over, in either order; the peers' time is waited for first, since only that can fail.
    inner_->wait(deadline);
    std::this_thread::sleep_until(std::min(arrival_, deadline));
    if (Clock::now() >= arrival_) return;
    throw CommError(where_ + ": timed out after " + seconds_text(Clock::now() - start) + " waiting for " +
                    std::to_string(bytes_) + " bytes on a throttled link, which takes another " +
                    seconds_text(arrival_ - Clock::now()));
  }

 private:
  std::unique_ptr<Shift> inner_;
  Deadline arrival_;
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

  // An empty shift takes no time: nothing travels.
  std::unique_ptr<Shift> shift(int hop, std::span<const std::byte> to_next,
                               std::span<std::byte> from_prev) override {
    const Deadline start = Clock::now();
    const std::size_t bytes = std::max(to_next.size(), from_prev.size());
    auto inner = inner_->shift(hop, to_next, from_prev);
    if (bytes == 0) return inner;
    return std::make_unique<ThrottledShift>(std::move(inner), start + travel_time(link_, bytes), bytes,
                                            place(rank(), hop));
  }

  // Small things are not throttled: this is a link for blocks.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }

 private:
  std::shared_ptr<Communicator> inner_;
  Link link_;
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
