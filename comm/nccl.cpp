#include "comm/nccl.h"

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "comm/nccl_endpoint.h"
#include "comm/nccl_memory.h"
#include "comm/poll.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Short against every deadline, long against a look at two events.
constexpr std::chrono::milliseconds kBetweenLooks{20};

class NcclShift final : public Shift {
 public:
  NcclShift(std::shared_ptr<NcclEndpoint> endpoint, std::shared_ptr<NcclTransfer> transfer)
      : end_(std::move(endpoint)), transfer_(std::move(transfer)) {}

  // The blocks of a shift that nobody waited for go back to the caller, so nothing may touch them any more:
  // neither NCCL, nor the stream before NCCL has let go of them.
  ~NcclShift() override {
    if (over_) return;
    end_->fail(place(end_->rank, transfer_->hop) + ": the shift was given up");
    try {
      hold_back();
    } catch (const DeviceError&) {  // then nothing on this device goes on
    }
    running_hop().reset();
  }
  NcclShift(const NcclShift&) = delete;
  NcclShift& operator=(const NcclShift&) = delete;

  bool test() override {
    if (ended_) return true;
    end_->check();
    ended_ = transfer_->done.passed();
    if (ended_) over();
    return ended_;
  }

  // Leaves the waiting to the compute stream.
  void wait(Deadline deadline) override {
    if (over_) return;
    end_->allow(*transfer_, deadline - Clock::now());
    end_->check();
    hold_back();
    over();
  }

  std::size_t arrived() const override {
    hold_back();
    return transfer_->receive ? transfer_->receive->bytes : 0;
  }

 private:
  std::optional<int>& running_hop() {
    return end_->running_hop[static_cast<std::size_t>(transfer_->channel)];
  }
  void over() {
    over_ = true;
    running_hop().reset();
  }
  void hold_back() const {
    if (!held_back_) transfer_->done.hold_back(end_->compute);
    held_back_ = true;
  }

  std::shared_ptr<NcclEndpoint> end_;
  std::shared_ptr<NcclTransfer> transfer_;
  mutable bool held_back_ = false;  // the compute stream goes on behind the transfer
  bool ended_ = false;              // on the device, as the host knows
  bool over_ = false;               // for the caller
};

// Nothing travels, so there is nothing to queue.
class EmptyShift final : public Shift {
 public:
  bool test() override { return true; }
  void wait(Deadline) override {}
  std::size_t arrived() const override { return 0; }
};

int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "make_nccl_communicator", "cudaGetDevice");
  return device;
}

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> bootstrap, cudaStream_t stream, const NcclOptions& options)
      : patience_(options.patience),
        device_(current_device()),
        end_(std::make_shared<NcclEndpoint>(std::move(bootstrap), stream, options)),
        watch_([this](const std::stop_token& stop) { watch(stop); }) {}

  // Peers may still need what this rank has queued.
  ~NcclCommunicator() override {
    watch_ = {};
    try {
      settle(Clock::now() + patience_);
    } catch (const std::exception&) {  // has been told, or nobody is left to hear of it
    }
  }

  std::string name() const override { return "nccl"; }
  int rank() const override { return end_->rank; }
  int size() const override { return end_->size; }
  void* stream() const override { return end_->compute; }
  SentCount sent() const override { return end_->sent; }

  std::vector<std::vector<std::byte>> all_gather(std::span<const std::byte> mine,
                                                 Deadline deadline) override {
    if (const std::string failure = end_->failure(); !failure.empty()) throw CommError(failure);
    return end_->bootstrap->all_gather(mine, deadline);
  }

  void abort(int exit_code, const std::string& why) noexcept override {
    end_->fail(why);
    end_->bootstrap->abort(exit_code, why);
  }

  void settle(Deadline deadline) override {
    const Deadline start = Clock::now();
    const bool in_time = poll_until(
        deadline, [this] { return end_->settled(); }, [this] { return end_->ended(); });
    if (!in_time) end_->fail_late(Clock::now() - start);
  }

  // NCCL asks for all ranks or none: where one end of a transfer is registered and the other is not, it may
  // hang.
  std::vector<BlockMemory> block_memory(std::size_t count, std::size_t bytes, Deadline deadline) override {
    auto mine = make_nccl_blocks(end_, count, bytes, patience_);
    const std::byte offered{static_cast<unsigned char>(mine.size() == count)};
    const auto all = all_gather(std::span(&offered, 1), deadline);
    std::vector<BlockMemory> blocks;
    if (std::ranges::any_of(all, [](const auto& blob) { return blob.at(0) == std::byte{0}; })) return blocks;
    for (auto& block : mine) blocks.push_back(NcclBlock::hand_over(std::move(block)));
    return blocks;
  }

 private:
  std::unique_ptr<Shift> start_shift(int hop, std::span<const std::byte> to_next,
                                     std::span<std::byte> from_prev, const Route& route) override {
    check_channel(route);
    if (hop < 0) throw UsageError("shift: hop is " + std::to_string(hop) + ", allowed is 0 or more");
    std::optional<int>& running = end_->running_hop[static_cast<std::size_t>(route.channel)];
    if (running) throw UsageError(busy_text(end_->rank, hop, *running, route.channel));
    if (to_next.empty() && from_prev.empty()) {
      end_->check();
      return std::make_unique<EmptyShift>();
    }
    auto shift = std::make_unique<NcclShift>(end_, end_->start(hop, to_next, from_prev, route));
    running = hop;
    return shift;
  }

  // A host that has queued a call may sleep in a synchronisation of its own. If a peer dies meanwhile, only
  // another thread can free the stream.
  void watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any rest;
    std::unique_lock lock(mutex);
    try {
      check_cuda(cudaSetDevice(device_), "nccl", "cudaSetDevice");
      while (!rest.wait_for(lock, stop, kBetweenLooks, [] { return false; }) && !stop.stop_requested())
        end_->check();
    } catch (const std::exception& error) {  // the next call throws it
      end_->fail(error.what());
    }
  }

  std::chrono::milliseconds patience_;
  int device_;
  std::shared_ptr<NcclEndpoint> end_;
  std::jthread watch_;
};

}  // namespace

bool nccl_built() { return true; }

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(std::shared_ptr<Communicator> bootstrap,
                                                           void* stream, const NcclOptions& options) {
  if (bootstrap == nullptr) throw UsageError("make_nccl_communicator: bootstrap is null");
  if (stream == nullptr) throw UsageError("make_nccl_communicator: stream is null");
  if (options.patience <= std::chrono::milliseconds(0)) {
    throw UsageError("NcclOptions: patience is " + std::to_string(options.patience.count()) +
                     " ms, allowed is more than 0");
  }
  return std::make_unique<NcclCommunicator>(std::move(bootstrap), static_cast<cudaStream_t>(stream), options);
}

}  // namespace ringattn
