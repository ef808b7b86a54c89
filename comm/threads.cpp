#include "comm/threads.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "comm/last_words.h"
#include "src/error.h"

namespace ringattn {
namespace {

// test() copies at most this much, so that it returns to the kernel soon; wait() copies the whole block.
constexpr std::size_t kBytesPerTest = std::size_t{1} << 20;

// A block that its sender lends to a rank until that rank has copied it: nothing is buffered between.
struct Offer {
  int hop = 0;
  int receiver = 0;
  std::span<const std::byte> block;
  std::size_t taken = 0;
  bool being_copied = false;  // the receiver reads the block outside the lock
  bool recalled = false;      // the sender waits for being_copied to end, to give the block up
  std::string refusal{};      // why the receiver will not take it, empty if it will
};

// What the ranks share. Every member is guarded by the mutex.
struct Group {
  explicit Group(std::size_t size) : offers(size), blobs(size), gathered(size) {}

  using Offers = std::array<std::optional<Offer>, Route::kChannels>;  // of one rank, by channel

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Offers> offers;  // by sending rank
  std::optional<std::string> aborted;

  std::vector<std::optional<std::vector<std::byte>>> blobs;  // of the all_gather under way, by rank
  std::vector<std::vector<std::byte>> gathered;              // by the last all_gather that ended
  std::uint64_t gathers_ended = 0;
};

// One rank's side; used by the thread of that rank alone.
struct Endpoint {
  std::shared_ptr<Group> group;
  int rank = 0, size = 1;
  SentCount sent;
  std::string failure;                                           // of an earlier operation, empty if none
  std::array<std::optional<int>, Route::kChannels> running_hop;  // of the shifts under way, by channel
};

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

class ThreadShift final : public Shift {
 public:
  ThreadShift(std::shared_ptr<Endpoint> endpoint, int hop, std::span<const std::byte> to_next,
              std::span<std::byte> from_prev, const Route& route)
      : end_(std::move(endpoint)),
        hop_(hop),
        channel_(at(route.channel)),
        receiver_(receiver_of(end_->rank, route, end_->size)),
        sender_(sender_to(end_->rank, route, end_->size)),
        to_next_(to_next),
        from_prev_(from_prev) {
    sent_ = to_next.empty();
    if (sent_) return;
    const std::lock_guard lock(end_->group->mutex);
    mine() = Offer{.hop = hop, .receiver = receiver_, .block = to_next};
    end_->group->changed.notify_all();
  }

  // Peers are not told that this rank has given up: if it failed, its own error is the one to report, and
  // theirs would race with it (see run_thread_ranks). After an error the block sent goes back to the caller:
  // wait until nobody reads it any more.
  ~ThreadShift() override {
    if (done_) return;
    std::unique_lock lock(end_->group->mutex);
    if (!sent_) {
      mine()->recalled = true;
      end_->group->changed.wait(lock, [this] { return !mine()->being_copied; });
      mine().reset();
    }
    if (end_->failure.empty()) end_->failure = place(end_->rank, hop_) + ": the shift was given up";
    end_->running_hop[channel_].reset();
  }
  ThreadShift(const ThreadShift&) = delete;
  ThreadShift& operator=(const ThreadShift&) = delete;

  bool test() override {
    if (done_) return true;
    std::unique_lock lock(end_->group->mutex);
    return advance(lock, kBytesPerTest);
  }

  std::size_t arrived() const override { return received_; }

  // Sleeps whenever neither direction can move; whoever changes something in the group wakes all.
  void wait(Deadline deadline) override {
    if (done_) return;
    const Deadline start = Clock::now();
    std::unique_lock lock(end_->group->mutex);
    while (!advance(lock, from_prev_.size())) {
      const bool in_time = end_->group->changed.wait_until(lock, deadline) == std::cv_status::no_timeout;
      if (!in_time && !advance(lock, from_prev_.size())) fail(timeout(Clock::now() - start));
    }
  }

 private:
  std::optional<Offer>& mine() { return end_->group->offers[at(end_->rank)][channel_]; }
  std::optional<Offer>& theirs() { return end_->group->offers[at(sender_)][channel_]; }

  [[noreturn]] void fail(const std::string& why) {
    end_->failure = why;
    throw CommError(why);
  }

  // Moves at most `limit` bytes in; true when both directions are done.
  bool advance(std::unique_lock<std::mutex>& lock, std::size_t limit) {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    receive(lock, limit);
    // Looked at after the copy, which let go of the lock: a notice sent meanwhile is not repeated.
    if (end_->group->aborted) throw CommError(*end_->group->aborted);
    if (!sent_ && !mine()->refusal.empty()) fail(mine()->refusal);
    if (!sent_ && mine()->taken == to_next_.size()) {
      mine().reset();
      sent_ = true;
    }
    done_ = sent_ && received_ == from_prev_.size();
    if (done_) end_->running_hop[channel_].reset();
    return done_;
  }

  // The receiver copies straight from the sender's block, without the lock: a copy takes milliseconds, and
  // other ranks share the lock. Meanwhile being_copied keeps the sender from giving the block up.
  void receive(std::unique_lock<std::mutex>& lock, std::size_t limit) {
    std::optional<Offer>& offer = theirs();
    if (received_ == from_prev_.size() || !offer || offer->recalled || end_->group->aborted) return;
    if (offer->receiver != end_->rank) return;        // the sender is still busy with another rank
    if (offer->taken == offer->block.size()) return;  // our previous block; its sender has not looked yet
    check(*offer);
    const std::span<const std::byte> piece =
        offer->block.subspan(received_, std::min(limit, offer->block.size() - received_));
    offer->being_copied = true;
    lock.unlock();
    std::memcpy(from_prev_.data() + received_, piece.data(), piece.size());
    lock.lock();
    received_ += piece.size();
    offer->taken = received_;
    offer->being_copied = false;
    if (offer->recalled || received_ == from_prev_.size()) end_->group->changed.notify_all();
  }

  // A wrong block is an error on both sides, at once: the sender would only wait for its deadline.
  void check(Offer& offer) {
    const int me = end_->rank;
    std::string why;
    if (offer.hop != hop_) {
      why = hop_text(me, hop_, sender_, offer.hop);
    } else if (offer.block.size() != from_prev_.size()) {
      why = size_text(me, hop_, sender_, offer.block.size(), from_prev_.size());
    }
    if (why.empty()) return;
    offer.refusal = place(sender_, offer.hop) + ": refused by its receiver: " + why;
    end_->group->changed.notify_all();
    fail(why);
  }

  std::string timeout(Clock::duration waited) {
    std::optional<PendingTransfer> receive, send;
    if (received_ != from_prev_.size()) {
      receive = {.peer = sender_, .bytes = from_prev_.size(), .moved = received_};
    }
    if (!sent_) send = {.peer = receiver_, .bytes = to_next_.size(), .moved = mine()->taken};
    return timeout_text(end_->rank, hop_, waited, receive, send);
  }

  std::shared_ptr<Endpoint> end_;
  int hop_;
  std::size_t channel_;
  int receiver_, sender_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  std::size_t received_ = 0;
  bool sent_ = false;
  bool done_ = false;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<Group> group, int rank, int size) {
    end_->group = std::move(group);
    end_->rank = rank;
    end_->size = size;
  }

  std::string name() const override { return "threads"; }
  int rank() const override { return end_->rank; }
  int size() const override { return end_->size; }
  SentCount sent() const override { return end_->sent; }

  // The last rank to come publishes all blobs. Nobody can come to the next gather before it has taken the
  // result of this one, so one set of results is enough.
  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    const Deadline start = Clock::now();
    Group& group = *end_->group;
    std::unique_lock lock(group.mutex);
    if (group.aborted) throw CommError(*group.aborted);
    if (!end_->failure.empty()) throw CommError(end_->failure);
    group.blobs[at(end_->rank)].emplace(mine.begin(), mine.end());
    const std::uint64_t before = group.gathers_ended;
    if (std::all_of(group.blobs.begin(), group.blobs.end(), [](const auto& b) { return b.has_value(); })) {
      for (std::size_t r = 0; r < group.blobs.size(); ++r) {
        group.gathered[r] = std::move(*group.blobs[r]);
        group.blobs[r].reset();
      }
      ++group.gathers_ended;
      group.changed.notify_all();
    }
    group.changed.wait_until(lock, deadline,
                             [&] { return group.gathers_ended != before || group.aborted.has_value(); });
    if (group.gathers_ended != before) return group.gathered;
    if (group.aborted) throw CommError(*group.aborted);
    end_->failure = gather_timeout(mine.size(), Clock::now() - start);
    throw CommError(end_->failure);
  }

  void abort(int, const std::string& why) noexcept override {
    const std::lock_guard lock(end_->group->mutex);
    if (!end_->group->aborted) end_->group->aborted = why;
    end_->group->changed.notify_all();
  }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    {
      const std::lock_guard lock(end_->group->mutex);
      if (end_->group->aborted) throw CommError(*end_->group->aborted);
    }
    if (!end_->failure.empty()) throw CommError(failed_before_text(end_->rank, hop, end_->failure));
    std::optional<int>& running = end_->running_hop[at(route.channel)];
    if (running) throw UsageError(busy_text(end_->rank, hop, *running, route.channel));
    auto shift = std::make_unique<ThreadShift>(end_, hop, to_next, from_prev, route);
    running = hop;
    end_->sent.bytes += to_next.size();
    end_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::string gather_timeout(std::size_t bytes, Clock::duration waited) const {
    std::vector<int> missing;
    for (int r = 0; r < end_->size; ++r) {
      if (!end_->group->blobs[at(r)]) missing.push_back(r);
    }
    return gather_timeout_text(end_->rank, bytes, waited, missing);
  }

  std::shared_ptr<Endpoint> end_ = std::make_shared<Endpoint>();
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size) {
  if (size < 1) {
    throw UsageError("make_thread_communicators: size is " + std::to_string(size) + ", allowed is 1 or more");
  }
  const auto group = std::make_shared<Group>(at(size));
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(at(size));
  for (int rank = 0; rank < size; ++rank) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(group, rank, size));
  }
  return communicators;
}

}  // namespace ringattn
