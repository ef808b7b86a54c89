// One rank's side of the NCCL ring: what is queued, what has ended, what is late. Internal to comm/.
#pragma once
#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/device_handles.h"
#include "comm/last_words.h"
#include "comm/nccl.h"
#include "comm/nccl_handle.h"

namespace ringattn {

// Both directions of a shift as the transfer stream sees them: between two events.
struct NcclTransfer {
  int hop = 0, channel = 0;
  std::optional<PendingTransfer> receive{}, send{};
  Event ready{};  // the compute stream has come to where the shift was started
  Event done{};   // the transfer has ended
  // Known from wait() on: how long it may take from when it could begin, which is looked at now and then.
  std::optional<Clock::duration> patience{};
  std::optional<Deadline> begun{};
};

// What the compute stream may do is known to it alone; everything else is guarded by the mutex, since a watch
// of its own thread looks after what is pending, too.
class NcclEndpoint {
 public:
  NcclEndpoint(std::shared_ptr<Communicator> bootstrap, cudaStream_t compute, const NcclOptions& options);

  // Queues the group of one shift behind what the compute stream has been given so far. Throws CommError.
  std::shared_ptr<NcclTransfer> start(int hop, std::span<const std::byte> to_next,
                                      std::span<std::byte> from_prev, const Route& route);
  // Throws CommError if this communicator has failed: because NCCL says so, because a transfer is late, or
  // before. The one to call from any thread.
  void check();
  // Forgets what has ended. True when nothing is pending.
  bool settled();
  // Ends this rank's part for good and tells why: the first reason stays. Frees the streams.
  void fail(const std::string& why) noexcept;
  // Ends as above with the words of a timeout of the oldest transfer.
  [[noreturn]] void fail_late(Clock::duration waited);
  std::size_t ended() const;  // a number that grows
  std::string failure() const;

  void allow(NcclTransfer& transfer, Clock::duration patience);

  // Makes memory known to NCCL, which then moves blocks within it without copies of its own. A handle; null
  // if NCCL refuses, or if this communicator has failed.
  void* register_memory(std::byte* data, std::size_t bytes);
  // Before the memory is freed, when no transfer touches it any more. After a failure nothing is left to do:
  // an abort ends all registrations once it has stopped NCCL's kernels, which is not for us to do before. (To
  // take one back NCCL asks the peers that have mapped the memory, and one of them may be why we abort.)
  void deregister_memory(void* handle) noexcept;

  const std::shared_ptr<Communicator> bootstrap;
  const cudaStream_t compute;
  const int rank, size;
  SentCount sent;
  std::array<std::optional<int>, Route::kChannels>
      running_hop;  // of shifts nobody has waited for, by channel

 private:
  void queue(const NcclTransfer& transfer, std::span<const std::byte> to_next,
             std::span<std::byte> from_prev);
  void copy_home(const NcclTransfer& transfer, std::span<const std::byte> from, std::span<std::byte> to);
  void check_locked();
  void forget_ended();
  NcclTransfer* oldest() const;  // that has not ended; null if there is none
  std::string late_text(Clock::duration waited) const;
  void fail_locked(const std::string& why) noexcept;

  mutable std::mutex mutex_;
  TransferStream transfers_;
  std::optional<NcclHandle> comm_;
  std::deque<std::shared_ptr<NcclTransfer>> pending_;  // in the order of the transfer stream
  std::size_t ended_ = 0;
  std::string failure_;  // empty if there is none
};

}  // namespace ringattn
