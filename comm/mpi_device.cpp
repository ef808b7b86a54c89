#include "comm/mpi_device.h"

#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "comm/device_handles.h"
#include "comm/last_words.h"
#include "comm/mpi_device_probe.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

// For the host, to meet the others when the communicators are made.
constexpr std::chrono::minutes kPatienceAtStart{5};

struct Endpoint {
  std::shared_ptr<Communicator> host;
  cudaStream_t compute = nullptr;
  SentCount sent{};
  std::string failure{};  // of an earlier operation, empty if none
  std::array<std::optional<int>, Route::kChannels> running_hop{};
};

class DirectShift final : public Shift {
 public:
  DirectShift(std::shared_ptr<Endpoint> endpoint, int hop, std::span<const std::byte> to_next,
              std::span<std::byte> from_prev, const Route& route)
      : end_(std::move(endpoint)), hop_(hop), route_(route), to_next_(to_next), from_prev_(from_prev) {
    ready_.record(end_->compute);  // the block is complete, and nobody reads the place of the other
  }
  // What MPI has been given it withdraws itself; before that nothing has touched the blocks.
  ~DirectShift() override {
    if (over_) return;
    if (end_->failure.empty()) end_->failure = place(rank(), hop_) + ": the shift was given up";
    running_hop().reset();
  }
  DirectShift(const DirectShift&) = delete;
  DirectShift& operator=(const DirectShift&) = delete;

  bool test() override { return advance(); }

  void wait(Deadline deadline) override {
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline, [this] { return advance(); }, [this] { return arrived(); });
    if (in_time) return;
    end_->failure = timeout(Clock::now() - start);
    throw CommError(end_->failure);
  }

  std::size_t arrived() const override {
    if (over_) return from_prev_.size();
    return running_ ? running_->arrived() : 0;
  }

 private:
  int rank() const { return end_->host->rank(); }
  std::optional<int>& running_hop() { return end_->running_hop[static_cast<std::size_t>(route_.channel)]; }

  bool advance() {
    if (over_) return true;
    if (!end_->failure.empty()) throw CommError(end_->failure);
    try {
      if (!running_) {
        if (!ready_.passed()) return false;
        running_ = end_->host->shift(hop_, to_next_, from_prev_, route_);
      }
      if (!running_->test()) return false;
    } catch (const CommError& error) {
      end_->failure = error.what();
      throw;
    }
    running_.reset();
    over_ = true;
    running_hop().reset();
    return true;
  }

  // Where the device has not come to the shift yet, nothing has moved, and the peers wait for this rank.
  std::string timeout(Clock::duration waited) const {
    if (!running_) {
      return place(rank(), hop_) + ": timed out after " + seconds_text(waited) +
             " waiting for the device to come to this shift";
    }
    std::optional<PendingTransfer> receive, send;
    const int size = end_->host->size();
    if (arrived() < from_prev_.size()) {
      receive = PendingTransfer{
          .peer = sender_to(rank(), route_, size), .bytes = from_prev_.size(), .moved = arrived()};
    }
    // MPI does not tell how much of it is gone.
    if (!to_next_.empty()) {
      send = PendingTransfer{.peer = receiver_of(rank(), route_, size), .bytes = to_next_.size()};
    }
    return timeout_text(rank(), hop_, waited, receive, send);
  }

  std::shared_ptr<Endpoint> end_;
  int hop_;
  Route route_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  Event ready_{};                     // where the compute stream was
  std::unique_ptr<Shift> running_{};  // of the host communicator
  bool over_ = false;
};

class Direct final : public DeviceCommunicator {
 public:
  explicit Direct(std::shared_ptr<Endpoint> endpoint) : end_(std::move(endpoint)) {}

  std::string name() const override { return "direct(" + end_->host->name() + ")"; }
  int rank() const override { return end_->host->rank(); }
  int size() const override { return end_->host->size(); }
  void* stream() const override { return end_->compute; }
  SentCount sent() const override { return end_->sent; }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    return end_->host->all_gather(mine, deadline);
  }
  void abort(int exit_code, const std::string& why) noexcept override { end_->host->abort(exit_code, why); }

  // A shift that was waited for has ended on the device, too: MPI has the bytes, or they are where they
  // belong.
  void settle(Deadline /*deadline*/) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
  }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    if (!end_->failure.empty()) throw CommError(failed_before_text(rank(), hop, end_->failure));
    std::optional<int>& running = end_->running_hop[static_cast<std::size_t>(route.channel)];
    if (running) throw UsageError(busy_text(rank(), hop, *running, route.channel));
    auto shift = std::make_unique<DirectShift>(end_, hop, to_next, from_prev, route);
    running = hop;
    end_->sent.bytes += to_next.size();
    end_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::shared_ptr<Endpoint> end_;
};

// "rank 2: ..." of the first rank that has something against it, the same everywhere; empty if none has.
std::string first_objection(Communicator& host, const std::string& mine, Deadline deadline) {
  const auto all = host.all_gather(std::as_bytes(std::span(mine)), deadline);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    std::string text(all[r].size(), ' ');
    std::memcpy(text.data(), all[r].data(), text.size());
    return text.starts_with("rank ") ? text : "rank " + std::to_string(r) + ": " + text;
  }
  return {};
}

std::string why_not_direct(Communicator& host,
                           const std::function<std::shared_ptr<Communicator>()>& make_host,
                           cudaStream_t stream, const MpiDeviceOptions& options) {
  std::string why = first_objection(
      host, options.claimed ? "" : "its " + host.name() + " does not claim to carry device memory",
      Clock::now() + kPatienceAtStart);
  if (!why.empty()) return why;
  const auto probe = make_host();
  if (probe == nullptr) throw UsageError("make_mpi_device: make_host made no second communicator");
  why = probe_device_memory(*probe, stream, Clock::now() + options.patience);
  // Whoever gave up at the end of its patience may come that much later than the others.
  return first_objection(host, why, Clock::now() + options.patience + kPatienceAtStart);
}

}  // namespace

MpiDevice make_mpi_device(const std::function<std::shared_ptr<Communicator>()>& make_host, void* stream,
                          const MpiDeviceOptions& options) {
  if (!make_host) throw UsageError("make_mpi_device: make_host is empty");
  if (stream == nullptr) throw UsageError("make_mpi_device: stream is null");
  if (options.patience <= std::chrono::milliseconds(0)) {
    throw UsageError("MpiDeviceOptions: patience is " + std::to_string(options.patience.count()) +
                     " ms, allowed is more than 0");
  }
  std::shared_ptr<Communicator> host = make_host();
  if (host == nullptr) throw UsageError("make_mpi_device: make_host made no communicator");
  const auto compute = static_cast<cudaStream_t>(stream);
  std::string why = why_not_direct(*host, make_host, compute, options);
  if (!why.empty()) return {make_staged(std::move(host), stream, options.staged), std::move(why)};
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->host = std::move(host);
  endpoint->compute = compute;
  return {std::make_unique<Direct>(std::move(endpoint)), {}};
}

}  // namespace ringattn
