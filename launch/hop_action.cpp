#include "launch/hop_action.h"

#include <unistd.h>

#include <csignal>
#include <stdexcept>

#include "src/error.h"

namespace ringattn::launch {
namespace {

class ActingCommunicator final : public Communicator {
 public:
  ActingCommunicator(std::shared_ptr<Communicator> inner, int hop, int channel, HopAction action)
      : inner_(std::move(inner)), hop_(hop), channel_(channel), action_(action) {}

  std::string name() const override { return "acting(" + inner_->name() + ")"; }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    return inner_->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { inner_->abort(exit_code, why); }
  SentCount sent() const override { return inner_->sent(); }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    // Before the transfer starts: the peers wait for something that never comes.
    if (hop == hop_ && route.channel == channel_) act();
    return inner_->shift(hop, to_next, from_prev, route);
  }

  void act() const {
    switch (action_) {
      case HopAction::kill:
        std::raise(SIGKILL);
        break;
      case HopAction::stop:
        std::raise(SIGSTOP);
        break;
      case HopAction::exit:
        _exit(0);
      case HopAction::throw_unknown:
        throw std::runtime_error("thrown on purpose at hop " + std::to_string(hop_));
      case HopAction::out_of_memory:
        throw OutOfMemory("out of memory on purpose at hop " + std::to_string(hop_));
    }
  }

  std::shared_ptr<Communicator> inner_;
  int hop_, channel_;
  HopAction action_;
};

}  // namespace

std::shared_ptr<Communicator> make_acting_at_hop(std::shared_ptr<Communicator> inner, int hop, int channel,
                                                 HopAction action) {
  return std::make_shared<ActingCommunicator>(std::move(inner), hop, channel, action);
}

}  // namespace ringattn::launch
