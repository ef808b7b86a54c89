// The protocol is that of comm/threads.cpp: a sender lends its block, the receiver takes it. But no step of
// it moves a byte; where threads copy and look whether a copy has ended, devices are given copies and events,
// a receiver takes a block in one piece, and a sender may go on as soon as the copy is queued. So the two
// share their words and their rules, and no code beyond these.
#include "comm/device_ranks.h"

#include <unistd.h>

#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "comm/device_handles.h"
#include "comm/device_peers.h"
#include "comm/last_words.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

// For the host, to meet the others when the communicators are made.
constexpr std::chrono::minutes kPatienceAtStart{5};

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// A block that its sender lends. Events have shared owners: a rank may be gone before its peer's stream has
// been told to wait.
struct Offer {
  int hop = 0;
  int receiver = 0;
  std::span<const std::byte> block;
  std::shared_ptr<Event> ready{};  // the block is what it should be
  std::shared_ptr<Event> taken{};  // the receiver's copy has ended; null until it is queued
  std::string refusal{};           // why the receiver will not take it, empty if it will
};

// What the ranks share. Every member is guarded by the mutex.
struct Group {
  explicit Group(int size) : offers(at(size)) {}
  std::mutex mutex;
  std::vector<std::array<std::optional<Offer>, Route::kChannels>> offers;  // of one rank, by channel
  std::optional<std::string> aborted;
};

// One rank's side; used by the thread of that rank alone.
struct Endpoint {
  std::shared_ptr<Communicator> threads;
  cudaStream_t compute = nullptr;
  int rank = 0, size = 1;
  std::shared_ptr<Group> group{};
  std::vector<int> devices{};  // of all ranks
  TransferStream copies{};
  std::deque<std::shared_ptr<Event>> pending{};  // ends of copies from and to here, as they were queued
  SentCount sent{};
  std::string failure{};  // of an earlier operation, empty if none
  std::array<std::optional<int>, Route::kChannels> running_hop{};
};

class DeviceShift final : public Shift {
 public:
  DeviceShift(std::shared_ptr<Endpoint> endpoint, int hop, std::span<const std::byte> to_next,
              std::span<std::byte> from_prev, const Route& route)
      : end_(std::move(endpoint)),
        hop_(hop),
        channel_(at(route.channel)),
        receiver_(receiver_of(end_->rank, route, end_->size)),
        sender_(sender_to(end_->rank, route, end_->size)),
        to_next_(to_next),
        from_prev_(from_prev),
        given_(to_next.empty()),
        taken_(from_prev.empty()) {
    ready_->record(end_->compute);
    if (given_) return;
    const std::lock_guard lock(end_->group->mutex);
    mine() = Offer{.hop = hop, .receiver = receiver_, .block = to_next, .ready = ready_};
  }

  // After an error the blocks go back to the caller: a copy that is queued already holds back the stream.
  ~DeviceShift() override {
    if (over_) return;
    try {
      const std::lock_guard lock(end_->group->mutex);
      if (mine() && mine()->taken) mine()->taken->hold_back(end_->compute);
      hold_back();
    } catch (const DeviceError&) {  // then nothing on this device goes on
    }
    const std::lock_guard lock(end_->group->mutex);
    if (!given_) mine().reset();
    if (end_->failure.empty()) end_->failure = place(end_->rank, hop_) + ": the shift was given up";
    end_->running_hop[channel_].reset();
  }
  DeviceShift(const DeviceShift&) = delete;
  DeviceShift& operator=(const DeviceShift&) = delete;

  bool test() override {
    if (ended_) return true;
    ended_ = met() && (!copied_ || copied_->passed()) && (!peers_copy_ || peers_copy_->passed());
    return ended_;
  }

  void wait(Deadline deadline) override {
    if (over_) return;
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline, [this] { return met(); }, [this] { return std::size_t{taken_} + given_; });
    if (!in_time) fail(timeout(Clock::now() - start));
  }

  // Nothing until the hosts have met; then all, since met() has told the stream to wait.
  std::size_t arrived() const override { return over_ ? from_prev_.size() : 0; }

 private:
  std::optional<Offer>& mine() { return end_->group->offers[at(end_->rank)][channel_]; }
  std::optional<Offer>& theirs() { return end_->group->offers[at(sender_)][channel_]; }

  [[noreturn]] void fail(const std::string& why) {
    end_->failure = why;
    throw CommError(why);
  }

  // True when both copies are queued, and the compute stream waits for them.
  bool met() {
    if (over_) return true;
    if (!end_->failure.empty()) throw CommError(end_->failure);
    const std::lock_guard lock(end_->group->mutex);
    if (!taken_) take();
    if (end_->group->aborted) throw CommError(*end_->group->aborted);
    if (!given_ && !mine()->refusal.empty()) fail(mine()->refusal);
    if (!given_ && mine()->taken) {
      peers_copy_ = mine()->taken;
      mine().reset();
      given_ = true;
    }
    if (!given_ || !taken_) return false;
    hold_back();
    over_ = true;
    end_->running_hop[channel_].reset();
    return true;
  }

  void hold_back() const {
    for (const auto& copy : {copied_, peers_copy_}) {
      if (!copy) continue;
      copy->hold_back(end_->compute);
      end_->pending.push_back(copy);
    }
  }

  void take() {
    std::optional<Offer>& offer = theirs();
    if (!offer || offer->receiver != end_->rank || offer->taken || end_->group->aborted) return;
    check(*offer);
    const cudaStream_t copies = end_->copies.get();
    ready_->hold_back(copies);        // nobody here reads the place any more
    offer->ready->hold_back(copies);  // and the block is complete there
    copy(offer->block, copies);
    copied_ = std::make_shared<Event>();
    copied_->record(copies);
    offer->taken = copied_;
    taken_ = true;
  }

  // Between two devices straight where open_peer_memory() has opened the way, else through the host: that is
  // CUDA's to know.
  void copy(std::span<const std::byte> block, cudaStream_t copies) const {
    const int here = end_->devices[at(end_->rank)], there = end_->devices[at(sender_)];
    if (here == there) {
      check_cuda(
          cudaMemcpyAsync(from_prev_.data(), block.data(), block.size(), cudaMemcpyDeviceToDevice, copies),
          place(end_->rank, hop_), "cudaMemcpyAsync");
    } else {
      check_cuda(cudaMemcpyPeerAsync(from_prev_.data(), here, block.data(), there, block.size(), copies),
                 place(end_->rank, hop_), "cudaMemcpyPeerAsync");
    }
  }

  // A wrong block is an error on both sides, at once: the sender would only wait for its deadline.
  void check(Offer& offer) {
    std::string why;
    if (offer.hop != hop_) {
      why = hop_text(end_->rank, hop_, sender_, offer.hop);
    } else if (offer.block.size() != from_prev_.size()) {
      why = size_text(end_->rank, hop_, sender_, offer.block.size(), from_prev_.size());
    }
    if (why.empty()) return;
    offer.refusal = place(sender_, offer.hop) + ": refused by its receiver: " + why;
    fail(why);
  }

  std::string timeout(Clock::duration waited) const {
    std::optional<PendingTransfer> receive, send;
    if (!taken_) receive = PendingTransfer{.peer = sender_, .bytes = from_prev_.size()};
    if (!given_) send = PendingTransfer{.peer = receiver_, .bytes = to_next_.size()};
    return timeout_text(end_->rank, hop_, waited, receive, send);
  }

  std::shared_ptr<Endpoint> end_;
  int hop_;
  std::size_t channel_;
  int receiver_, sender_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  std::shared_ptr<Event> ready_ = std::make_shared<Event>();  // where the compute stream was
  std::shared_ptr<Event> copied_{}, peers_copy_{};
  bool given_, taken_;
  bool over_ = false;   // for the caller
  bool ended_ = false;  // on the devices
};

class DeviceRanks final : public DeviceCommunicator {
 public:
  explicit DeviceRanks(std::shared_ptr<Endpoint> endpoint) : end_(std::move(endpoint)) {}

  std::string name() const override { return "device(" + end_->threads->name() + ")"; }
  int rank() const override { return end_->rank; }
  int size() const override { return end_->size; }
  void* stream() const override { return end_->compute; }
  SentCount sent() const override { return end_->sent; }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    return end_->threads->all_gather(mine, deadline);
  }

  void abort(int exit_code, const std::string& why) noexcept override {
    {
      const std::lock_guard lock(end_->group->mutex);
      if (!end_->group->aborted) end_->group->aborted = why;
    }
    end_->threads->abort(exit_code, why);
  }

  // It has met its peers in every shift that was waited for, so all copies are known.
  void settle(Deadline deadline) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline,
        [this] {
          forget_ended();
          return end_->pending.empty();
        },
        [this] { return end_->pending.size(); });
    if (in_time) return;
    end_->failure = "rank " + std::to_string(end_->rank) + ": timed out after " +
                    seconds_text(Clock::now() - start) + " waiting for the devices to copy";
    throw CommError(end_->failure);
  }

 private:
  // Copies to several ranks end in any order; what is behind the oldest is forgotten later.
  void forget_ended() {
    while (!end_->pending.empty() && end_->pending.front()->passed()) end_->pending.pop_front();
  }

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
    forget_ended();
    auto shift = std::make_unique<DeviceShift>(end_, hop, to_next, from_prev, route);
    running = hop;
    end_->sent.bytes += to_next.size();
    end_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::shared_ptr<Endpoint> end_;
};

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "make_device_ranks", "cudaGetDevice");
  return device;
}

struct Meeting {
  std::shared_ptr<Group> group{};
  std::vector<int> devices{};  // of all ranks
};

// Rank 0's group becomes everybody's: first all learn who lives in which process, on which device, and where
// the group is, then all hold it before rank 0 goes on.
Meeting meet(Communicator& threads) {
  struct Card {
    std::uint64_t process = 0;
    const std::shared_ptr<Group>* group = nullptr;
    int device = 0;
  };
  const auto made = threads.rank() == 0 ? std::make_shared<Group>(threads.size()) : nullptr;
  const Card mine{
      .process = static_cast<std::uint64_t>(getpid()), .group = &made, .device = current_device()};
  const auto blobs = threads.all_gather(std::as_bytes(std::span(&mine, 1)), Clock::now() + kPatienceAtStart);
  Meeting met{.devices = std::vector<int>(blobs.size())};
  for (std::size_t r = blobs.size(); r-- > 0;) {
    Card theirs;
    std::memcpy(&theirs, blobs[r].data(), sizeof theirs);
    if (theirs.process != mine.process) {
      throw UsageError("make_device_ranks: rank " + std::to_string(r) + " is process " +
                       std::to_string(theirs.process) + ", rank " + std::to_string(threads.rank()) +
                       " is process " + std::to_string(mine.process));
    }
    met.devices[r] = theirs.device;
    if (r == 0) met.group = *theirs.group;
  }
  (void)threads.all_gather({}, Clock::now() + kPatienceAtStart);
  return met;
}

// A rank takes blocks from any other, in the end, so its device is let touch those of all. The ranks over
// there do the same for theirs.
void open_memory_of(const std::vector<int>& devices) {
  const int here = current_device();
  for (const int device : std::set<int>(devices.begin(), devices.end()))
    if (device != here) open_peer_memory(device);
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_device_ranks(std::shared_ptr<Communicator> threads, void* stream) {
  if (threads == nullptr) throw UsageError("make_device_ranks: threads is null");
  if (stream == nullptr) throw UsageError("make_device_ranks: stream is null");
  const int rank = threads->rank(), size = threads->size();
  Meeting met = meet(*threads);
  open_memory_of(met.devices);
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->threads = std::move(threads);
  endpoint->compute = static_cast<cudaStream_t>(stream);
  endpoint->rank = rank;
  endpoint->size = size;
  endpoint->group = std::move(met.group);
  endpoint->devices = std::move(met.devices);
  return std::make_unique<DeviceRanks>(std::move(endpoint));
}

}  // namespace ringattn
