#include "comm/self.h"

#include <array>
#include <cstring>
#include <optional>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Shared with the running shift, which may outlive the communicator on the way out of an error.
struct SelfState {
  SentCount sent;
  std::optional<std::string> aborted;
  std::array<std::optional<int>, Route::kChannels> running_hop;  // by channel
};

// Copies at the first test() or wait(), like a link whose receiver drives the transfer.
class SelfShift final : public Shift {
 public:
  SelfShift(std::shared_ptr<SelfState> state, int hop, int channel, std::span<const std::byte> to_next,
            std::span<std::byte> from_prev)
      : state_(std::move(state)), hop_(hop), channel_(channel), to_next_(to_next), from_prev_(from_prev) {}
  ~SelfShift() override {
    if (!done_) running_hop().reset();
  }
  SelfShift(const SelfShift&) = delete;
  SelfShift& operator=(const SelfShift&) = delete;

  bool test() override {
    if (state_->aborted) throw CommError(*state_->aborted);
    if (to_next_.size() != from_prev_.size()) {
      throw CommError(size_text(0, hop_, 0, to_next_.size(), from_prev_.size()));
    }
    // memmove, since a caller may well pass one block as both.
    if (!done_ && !to_next_.empty()) std::memmove(from_prev_.data(), to_next_.data(), to_next_.size());
    if (!done_) running_hop().reset();
    done_ = true;
    return true;
  }
  void wait(Deadline) override { test(); }
  std::size_t arrived() const override { return done_ ? from_prev_.size() : 0; }

 private:
  std::optional<int>& running_hop() { return state_->running_hop[static_cast<std::size_t>(channel_)]; }

  std::shared_ptr<SelfState> state_;
  int hop_, channel_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  bool done_ = false;
};

class SelfCommunicator final : public Communicator {
 public:
  std::string name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, Deadline) override {
    if (state_->aborted) throw CommError(*state_->aborted);
    return {std::vector<std::byte>(mine.begin(), mine.end())};
  }

  void abort(int, const std::string& why) noexcept override {
    if (!state_->aborted) state_->aborted = why;
  }

  SentCount sent() const override { return state_->sent; }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    if (state_->aborted) throw CommError(*state_->aborted);
    std::optional<int>& running = state_->running_hop[static_cast<std::size_t>(route.channel)];
    if (running) throw UsageError(busy_text(0, hop, *running, route.channel));
    auto shift = std::make_unique<SelfShift>(state_, hop, route.channel, to_next, from_prev);
    running = hop;
    state_->sent.bytes += to_next.size();
    state_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::shared_ptr<SelfState> state_ = std::make_shared<SelfState>();
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace ringattn
