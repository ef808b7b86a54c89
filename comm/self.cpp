#include "comm/self.h"

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
  std::optional<int> running_hop;
};

// Copies at the first test() or wait(), like a link whose receiver drives the transfer.
class SelfShift final : public Shift {
 public:
  SelfShift(std::shared_ptr<SelfState> state, int hop, std::span<const std::byte> to_next,
            std::span<std::byte> from_prev)
      : state_(std::move(state)), hop_(hop), to_next_(to_next), from_prev_(from_prev) {}
  ~SelfShift() override {
    if (!done_) state_->running_hop.reset();
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
    done_ = true;
    state_->running_hop.reset();
    return true;
  }
  void wait(Deadline) override { test(); }

 private:
  std::shared_ptr<SelfState> state_;
  int hop_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  bool done_ = false;
};

class SelfCommunicator final : public Communicator {
 public:
  std::string name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  std::unique_ptr<Shift> shift(int hop, std::span<const std::byte> to_next,
                               std::span<std::byte> from_prev) override {
    if (state_->aborted) throw CommError(*state_->aborted);
    if (state_->running_hop) throw UsageError(busy_text(0, hop, *state_->running_hop));
    auto shift = std::make_unique<SelfShift>(state_, hop, to_next, from_prev);
    state_->running_hop = hop;
    state_->sent.bytes += to_next.size();
    state_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine, Deadline) override {
    if (state_->aborted) throw CommError(*state_->aborted);
    return {std::vector<std::byte>(mine.begin(), mine.end())};
  }

  void abort(int, const std::string& why) noexcept override {
    if (!state_->aborted) state_->aborted = why;
  }

  SentCount sent() const override { return state_->sent; }

 private:
  std::shared_ptr<SelfState> state_ = std::make_shared<SelfState>();
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() { return std::make_unique<SelfCommunicator>(); }

}  // namespace ringattn
