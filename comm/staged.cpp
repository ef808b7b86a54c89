#include "comm/staged.h"

#include <array>
#include <climits>
#include <cstdint>
#include <optional>
#include <vector>

#include "comm/chunks.h"
#include "comm/device_handles.h"
#include "comm/last_words.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

// A place for one chunk on its way, and when the device is done with it.
struct Stage {
  explicit Stage(std::size_t bytes) : buffer(bytes) {}
  ~Stage() { copied.await(); }  // the communicator may end while its last copies are still queued
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  PinnedBuffer buffer;
  Event copied{};
};

// The buffers of one channel.
struct Lane {
  std::vector<std::unique_ptr<Stage>> out, in;
};

struct Endpoint {
  std::shared_ptr<Communicator> host;
  cudaStream_t compute = nullptr;
  StagedOptions options{};
  TransferStream down{}, up{};  // to the host and to the device, side by side
  std::array<Lane, Route::kChannels> lanes{};
  std::array<std::shared_ptr<Event>, Route::kChannels> landed{};  // the last block, null if there was none
  SentCount sent{};
  std::string failure{};  // of an earlier operation, empty if none
  std::array<std::optional<int>, Route::kChannels> running_hop{};

  Stage& stage(std::vector<std::unique_ptr<Stage>>& stages, std::size_t chunk) const {
    return *stages[chunk % stages.size()];
  }
};

// Goes ahead of the chunks: a block of another size has as many chunks, or more, or fewer, and only the first
// of these would be noticed by who carries them.
struct BlockHeader {
  std::uint64_t bytes = 0, chunk_bytes = 0;
};

// Chunk c of both directions travels in one shift of the host communicator, after chunk c-1:
//   copied from the device   c+1
//   travels                  c
//   copied to the device     c-1
class StagedShift final : public Shift {
 public:
  StagedShift(std::shared_ptr<Endpoint> endpoint, int hop, std::span<const std::byte> to_next,
              std::span<std::byte> from_prev, const Route& route)
      : end_(std::move(endpoint)),
        lane_(end_->lanes[static_cast<std::size_t>(route.channel)]),
        hop_(hop),
        route_(route),
        to_next_(to_next),
        from_prev_(from_prev),
        out_(to_next.size(), end_->options.chunk_bytes),
        in_(from_prev.size(), end_->options.chunk_bytes),
        header_out_{.bytes = to_next.size(), .chunk_bytes = end_->options.chunk_bytes} {}

  // After an error the blocks go back to the caller: the stream goes on behind the copies that are queued.
  ~StagedShift() override {
    if (over_) return;
    running_.reset();
    try {
      for (const TransferStream* stream : {&end_->down, &end_->up}) {
        Event last;
        last.record(stream->get());
        last.hold_back(end_->compute);
      }
    } catch (const DeviceError&) {  // then nothing on this device goes on
    }
    if (end_->failure.empty()) end_->failure = place(rank(), hop_) + ": the shift was given up";
    running_hop().reset();
  }
  StagedShift(const StagedShift&) = delete;
  StagedShift& operator=(const StagedShift&) = delete;

  // Apart from the constructor, so that the destructor takes care of what has been queued when it throws.
  void start() {
    Event ready;  // the block is complete, and nobody reads the place of the other
    ready.record(end_->compute);
    ready.hold_back(end_->down.get());
    ready.hold_back(end_->up.get());
    copy_down();
    const auto out = std::as_bytes(std::span(&header_out_, 1));
    const auto in = std::as_writable_bytes(std::span(&header_in_, 1));
    running_ = end_->host->shift(hop_, out.first(to_next_.empty() ? 0 : out.size()),
                                 in.first(from_prev_.empty() ? 0 : in.size()), route_);
  }

  bool test() override { return advance() && landed_->passed(); }

  void wait(Deadline deadline) override {
    if (over_) return;
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline, [this] { return advance(); }, [this] { return exchanged_ + copied_down_; });
    if (in_time) return;
    end_->failure = timeout(Clock::now() - start);
    throw CommError(end_->failure);
  }

  std::size_t arrived() const override {
    const std::size_t chunks = std::min(exchanged_, in_.count());
    if (chunks > held_back_) {
      end_->stage(lane_.in, chunks - 1).copied.hold_back(end_->compute);  // those before it are, too
      held_back_ = chunks;
    }
    return chunks == in_.count() ? from_prev_.size() : in_.offset(chunks);
  }

 private:
  int rank() const { return end_->host->rank(); }
  std::size_t chunk_count() const { return std::max(in_.count(), out_.count()); }
  std::size_t size_of(const Chunks& chunks, std::size_t c) const {
    return c < chunks.count() ? static_cast<std::size_t>(chunks.size(c)) : 0;
  }
  std::optional<int>& running_hop() { return end_->running_hop[static_cast<std::size_t>(route_.channel)]; }

  // As many chunks as there are buffers that hold none.
  void copy_down() {
    for (; copied_down_ < std::min(out_.count(), exchanged_ + lane_.out.size()); ++copied_down_) {
      Stage& stage = end_->stage(lane_.out, copied_down_);
      check_cuda(cudaMemcpyAsync(stage.buffer.bytes().data(), to_next_.data() + out_.offset(copied_down_),
                                 size_of(out_, copied_down_), cudaMemcpyDeviceToHost, end_->down.get()),
                 place(rank(), hop_), "cudaMemcpyAsync");
      stage.copied.record(end_->down.get());
    }
  }

  void copy_up(std::size_t chunk) {
    if (chunk >= in_.count()) return;
    Stage& stage = end_->stage(lane_.in, chunk);
    check_cuda(cudaMemcpyAsync(from_prev_.data() + in_.offset(chunk), stage.buffer.bytes().data(),
                               size_of(in_, chunk), cudaMemcpyHostToDevice, end_->up.get()),
               place(rank(), hop_), "cudaMemcpyAsync");
    stage.copied.record(end_->up.get());
  }

  // True when both directions are done, and the compute stream waits for the last copy.
  bool advance() {
    if (over_) return true;
    if (!end_->failure.empty()) throw CommError(end_->failure);
    try {
      while (step()) {
      }
    } catch (const CommError& error) {
      end_->failure = error.what();
      throw;
    }
    if (running_ || exchanged_ < chunk_count()) return false;
    landed_ = std::make_shared<Event>();
    landed_->record(end_->up.get());
    landed_->hold_back(end_->compute);
    end_->landed[static_cast<std::size_t>(route_.channel)] = landed_;
    over_ = true;
    running_hop().reset();
    return true;
  }

  // True if something has moved on.
  bool step() {
    if (running_) {
      if (!running_->test()) return false;
      running_.reset();
      if (header_checked_) {
        copy_up(exchanged_++);
        copy_down();
      } else {
        check_header();
        header_checked_ = true;
      }
      return true;
    }
    const std::size_t c = exchanged_;
    if (c == chunk_count()) return false;
    Stage& out = end_->stage(lane_.out, c);
    Stage& in = end_->stage(lane_.in, c);
    // A buffer that the device still reads or writes is not the host's.
    if (c < out_.count() && !out.copied.passed()) return false;
    if (c < in_.count() && !in.copied.passed()) return false;
    running_ = end_->host->shift(hop_, out.buffer.bytes().first(size_of(out_, c)),
                                 in.buffer.bytes().first(size_of(in_, c)), route_);
    return true;
  }

  void check_header() const {
    if (from_prev_.empty()) return;
    const int sender = sender_to(rank(), route_, end_->host->size());
    if (header_in_.bytes != from_prev_.size()) {
      throw CommError(size_text(rank(), hop_, sender, header_in_.bytes, from_prev_.size()));
    }
    if (header_in_.chunk_bytes != header_out_.chunk_bytes) {
      throw CommError(place(rank(), hop_) + ": rank " + std::to_string(sender) + " sends chunks of " +
                      std::to_string(header_in_.chunk_bytes) + " bytes, " +
                      std::to_string(header_out_.chunk_bytes) + " are expected");
    }
  }

  std::string timeout(Clock::duration waited) const {
    const auto moved = [this](const Chunks& chunks, std::size_t bytes) {
      return exchanged_ < chunks.count() ? chunks.offset(exchanged_) : bytes;
    };
    const int size = end_->host->size();
    std::optional<PendingTransfer> receive, send;
    if (exchanged_ < in_.count()) {
      receive = PendingTransfer{.peer = sender_to(rank(), route_, size),
                                .bytes = from_prev_.size(),
                                .moved = moved(in_, from_prev_.size())};
    }
    if (exchanged_ < out_.count()) {
      send = PendingTransfer{.peer = receiver_of(rank(), route_, size),
                             .bytes = to_next_.size(),
                             .moved = moved(out_, to_next_.size())};
    }
    return timeout_text(rank(), hop_, waited, receive, send);
  }

  std::shared_ptr<Endpoint> end_;
  Lane& lane_;
  int hop_;
  Route route_;
  std::span<const std::byte> to_next_;
  std::span<std::byte> from_prev_;
  Chunks out_, in_;
  const BlockHeader header_out_;
  BlockHeader header_in_{};
  bool header_checked_ = false;
  std::size_t copied_down_ = 0, exchanged_ = 0;  // chunks
  mutable std::size_t held_back_ = 0;            // chunks that the compute stream waits for
  std::unique_ptr<Shift> running_{};             // of the host communicator
  std::shared_ptr<Event> landed_{};
  bool over_ = false;
};

class Staged final : public DeviceCommunicator {
 public:
  explicit Staged(std::shared_ptr<Endpoint> endpoint) : end_(std::move(endpoint)) {}

  std::string name() const override { return "staged(" + end_->host->name() + ")"; }
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

  void settle(Deadline deadline) override {
    if (!end_->failure.empty()) throw CommError(end_->failure);
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline,
        [this] {
          for (const auto& landed : end_->landed)
            if (landed && !landed->passed()) return false;
          return true;
        },
        [] { return std::size_t{0}; });
    if (in_time) return;
    end_->failure = "rank " + std::to_string(rank()) + ": timed out after " +
                    seconds_text(Clock::now() - start) + " waiting for the device to copy";
    throw CommError(end_->failure);
  }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    if (!end_->failure.empty()) throw CommError(failed_before_text(rank(), hop, end_->failure));
    std::optional<int>& running = end_->running_hop[static_cast<std::size_t>(route.channel)];
    if (running) throw UsageError(busy_text(rank(), hop, *running, route.channel));
    auto shift = std::make_unique<StagedShift>(end_, hop, to_next, from_prev, route);
    running = hop;  // before start(): if it throws, the shift's destructor clears it
    shift->start();
    end_->sent.bytes += to_next.size();
    end_->sent.messages += to_next.empty() ? 0 : 1;
    return shift;
  }

  std::shared_ptr<Endpoint> end_;
};

void check(const StagedOptions& options) {
  if (options.chunk_bytes < 1 || options.chunk_bytes > INT_MAX) {
    throw UsageError("StagedOptions: chunk_bytes is " + std::to_string(options.chunk_bytes) +
                     ", allowed is 1 to 2147483647");
  }
  if (options.buffers < 2) {
    throw UsageError("StagedOptions: buffers is " + std::to_string(options.buffers) +
                     ", allowed is 2 or more");
  }
}

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged(std::shared_ptr<Communicator> host, void* stream,
                                                const StagedOptions& options) {
  if (host == nullptr) throw UsageError("make_staged: host is null");
  if (stream == nullptr) throw UsageError("make_staged: stream is null");
  check(options);
  std::shared_ptr<Endpoint> endpoint(new Endpoint{
      .host = std::move(host), .compute = static_cast<cudaStream_t>(stream), .options = options});
  for (Lane& lane : endpoint->lanes) {
    for (int i = 0; i < options.buffers; ++i) {
      lane.out.push_back(std::make_unique<Stage>(options.chunk_bytes));
      lane.in.push_back(std::make_unique<Stage>(options.chunk_bytes));
    }
  }
  return std::make_unique<Staged>(std::move(endpoint));
}

}  // namespace ringattn
