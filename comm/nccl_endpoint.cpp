#include "comm/nccl_endpoint.h"

#include <cstring>

#include "comm/nccl_registration.h"
#include "src/error.h"

namespace ringattn {
namespace {

std::string me(int rank) { return "rank " + std::to_string(rank); }

// Every rank calls it, so that one that cannot go on is heard of by all, and nobody waits for it.
ncclUniqueId shared_id(Communicator& bootstrap, std::chrono::milliseconds patience) {
  ncclUniqueId id{};
  std::string problem;
  if (bootstrap.rank() == 0) {
    const ncclResult_t code = ncclGetUniqueId(&id);
    if (code != ncclSuccess) problem = ncclGetErrorString(code);
  }
  const auto mine = std::as_bytes(std::span(&id, bootstrap.rank() == 0 && problem.empty() ? 1u : 0u));
  const auto blobs = bootstrap.all_gather(mine, Clock::now() + patience);
  if (blobs[0].size() != sizeof id) {
    throw CommError("rank 0: ncclGetUniqueId: " + (problem.empty() ? std::string("failed") : problem));
  }
  std::memcpy(&id, blobs[0].data(), sizeof id);
  return id;
}

// All ranks look at all answers, so all refuse or none.
void check_ranks(Communicator& bootstrap, ncclComm_t original, std::chrono::milliseconds patience) {
  std::array<int, 2> mine{};  // rank, size
  check_nccl(ncclCommUserRank(original, &mine[0]), me(bootstrap.rank()), "ncclCommUserRank");
  check_nccl(ncclCommCount(original, &mine[1]), me(bootstrap.rank()), "ncclCommCount");
  const auto blobs = bootstrap.all_gather(std::as_bytes(std::span(mine)), Clock::now() + patience);
  for (std::size_t r = 0; r < blobs.size(); ++r) {
    std::array<int, 2> theirs{};
    if (blobs[r].size() != sizeof theirs)
      throw CommError("make_nccl_communicator: ranks differ in options.comm");
    std::memcpy(&theirs, blobs[r].data(), sizeof theirs);
    if (theirs[0] == static_cast<int>(r) && theirs[1] == bootstrap.size()) continue;
    throw UsageError("make_nccl_communicator: rank " + std::to_string(r) + " of the bootstrap's " +
                     std::to_string(bootstrap.size()) + " is rank " + std::to_string(theirs[0]) + " of " +
                     std::to_string(theirs[1]) + " in options.comm");
  }
}

// A group that has been started must be ended, whatever happens in between.
class Group {
 public:
  Group(const std::string& where, ncclComm_t comm) : where_(where), comm_(comm) {
    check_nccl(ncclGroupStart(), where_, "ncclGroupStart", comm_);
  }
  ~Group() {
    if (open_) ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  void end() {
    open_ = false;
    check_nccl(ncclGroupEnd(), where_, "ncclGroupEnd", comm_);
  }

 private:
  const std::string& where_;
  ncclComm_t comm_;
  bool open_ = true;
};

}  // namespace

NcclEndpoint::NcclEndpoint(std::shared_ptr<Communicator> host, cudaStream_t stream,
                           const NcclOptions& options)
    : bootstrap(std::move(host)), compute(stream), rank(bootstrap->rank()), size(bootstrap->size()) {
  if (options.comm != nullptr) {
    const auto original = static_cast<ncclComm_t>(options.comm);
    check_ranks(*bootstrap, original, options.patience);
    comm_.emplace(original, rank, options.patience);
  } else {
    comm_.emplace(shared_id(*bootstrap, options.patience), rank, size, options.patience);
  }
}

// The argument of order, for the ring loops of src/executor.cpp. The transfer stream T runs one shift after
// the other; C is the compute stream.
// - T begins a shift after `ready`, that is after all work that C had been given when the shift was started:
//   the work that made the block sent, and the last work that read the slot which now receives.
// - C goes on after wait() behind `done`, that is behind both directions: what arrived may be read, and what
//   was sent may be overwritten.
// - Two shifts never overlap, so neither do they touch one slot at once.
// Nothing blocks: let the shifts of all ranks be numbered in the one order in which every rank starts them.
// Shift n of a rank runs when its own shifts before n have ended, when its C has come to `ready`, behind
// which stand only waits for shifts before n, and when its peers have come to their shift n. By induction
// over n all do. An empty direction is left out on both of its ends, which takes nothing from this. One
// stream costs backward nothing: a turn starts K, V and then dK, dV, both behind the same work, and over one
// link two transfers that begin together end no earlier if they share it.
std::shared_ptr<NcclTransfer> NcclEndpoint::start(int hop, std::span<const std::byte> to_next,
                                                  std::span<std::byte> from_prev, const Route& route) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw CommError(failed_before_text(rank, hop, failure_));
  check_locked();
  forget_ended();
  auto transfer = std::make_shared<NcclTransfer>();
  transfer->hop = hop;
  transfer->channel = route.channel;
  if (!to_next.empty()) {
    transfer->send = PendingTransfer{.peer = receiver_of(rank, route, size), .bytes = to_next.size()};
  }
  if (!from_prev.empty()) {
    transfer->receive = PendingTransfer{.peer = sender_to(rank, route, size), .bytes = from_prev.size()};
  }
  transfer->ready.record(compute);
  transfer->ready.hold_back(transfers_.get());
  try {
    queue(*transfer, to_next, from_prev);
  } catch (const CommError& error) {  // the peers would wait for what has not been queued
    fail_locked(error.what());
    throw;
  }
  transfer->done.record(transfers_.get());
  pending_.push_back(transfer);
  sent.bytes += to_next.size();
  sent.messages += to_next.empty() ? 0 : 1;
  return transfer;
}

// Sends and receives in one group: NCCL runs them side by side. One after the other, every rank's send would
// wait for a receive that stands behind another send (case A20).
void NcclEndpoint::queue(const NcclTransfer& transfer, std::span<const std::byte> to_next,
                         std::span<std::byte> from_prev) {
  const auto& send = transfer.send;
  const auto& receive = transfer.receive;
  if ((send && send->peer == rank) || (receive && receive->peer == rank)) {
    return copy_home(transfer, to_next, from_prev);
  }
  const std::string where = place(rank, transfer.hop);
  const ncclComm_t comm = comm_->get();
  {
    Group group(where, comm);
    if (send) {
      check_nccl(ncclSend(to_next.data(), to_next.size(), ncclUint8, send->peer, comm, transfers_.get()),
                 where, "ncclSend", comm);
    }
    if (receive) {
      check_nccl(
          ncclRecv(from_prev.data(), from_prev.size(), ncclUint8, receive->peer, comm, transfers_.get()),
          where, "ncclRecv", comm);
    }
    group.end();
  }
  comm_->await_issue(where);
}

void NcclEndpoint::copy_home(const NcclTransfer& transfer, std::span<const std::byte> from,
                             std::span<std::byte> to) {
  if (from.size() != to.size()) {
    throw CommError(size_text(rank, transfer.hop, rank, from.size(), to.size()));
  }
  if (from.data() == to.data()) return;  // a caller may well pass one block as both
  check_cuda(cudaMemcpyAsync(to.data(), from.data(), from.size(), cudaMemcpyDeviceToDevice, transfers_.get()),
             place(rank, transfer.hop), "cudaMemcpyAsync");
}

void NcclEndpoint::check() {
  const std::lock_guard lock(mutex_);
  check_locked();
}

bool NcclEndpoint::settled() {
  const std::lock_guard lock(mutex_);
  check_locked();
  forget_ended();
  return pending_.empty();
}

void NcclEndpoint::forget_ended() {
  while (!pending_.empty() && pending_.front()->done.passed()) {
    pending_.pop_front();
    ++ended_;
  }
}

NcclTransfer* NcclEndpoint::oldest() const {
  for (const auto& transfer : pending_)
    if (!transfer->done.passed()) return transfer.get();
  return nullptr;
}

// A transfer is late when its patience has passed since it could begin: when the compute stream had come to
// it and the transfers before it had ended. A long queue of hops is not lateness.
void NcclEndpoint::check_locked() {
  if (!failure_.empty()) throw CommError(failure_);
  NcclTransfer* const transfer = oldest();
  if (const auto error = comm_->error()) {
    fail_locked((transfer == nullptr ? me(rank) : place(rank, transfer->hop)) + ": " + *error);
    throw CommError(failure_);
  }
  if (transfer == nullptr) return;
  const Deadline now = Clock::now();
  if (!transfer->begun && transfer->ready.passed()) transfer->begun = now;
  if (!transfer->begun || !transfer->patience || now - *transfer->begun < *transfer->patience) return;
  fail_locked(late_text(now - *transfer->begun));
  throw CommError(failure_);
}

void NcclEndpoint::fail(const std::string& why) noexcept {
  const std::lock_guard lock(mutex_);
  fail_locked(why);
}

void NcclEndpoint::fail_locked(const std::string& why) noexcept {
  if (!failure_.empty()) return;
  failure_ = why;
  comm_->abort();
}

void NcclEndpoint::fail_late(Clock::duration waited) {
  const std::lock_guard lock(mutex_);
  fail_locked(late_text(waited));
  throw CommError(failure_);
}

// NCCL does not tell how much of a block has moved.
std::string NcclEndpoint::late_text(Clock::duration waited) const {
  const NcclTransfer* transfer = oldest();
  if (transfer == nullptr) return me(rank) + ": timed out after " + seconds_text(waited);
  if (transfer->ready.passed())
    return timeout_text(rank, transfer->hop, waited, transfer->receive, transfer->send);
  return place(rank, transfer->hop) + ": timed out after " + seconds_text(waited) +
         " waiting for the work on the stream before the transfer";
}

std::size_t NcclEndpoint::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

std::string NcclEndpoint::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void* NcclEndpoint::register_memory(std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return failure_.empty() ? nccl_register(comm_->get(), data, bytes) : nullptr;
}

void NcclEndpoint::deregister_memory(void* handle) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) nccl_deregister(comm_->get(), handle);
}

void NcclEndpoint::allow(NcclTransfer& transfer, Clock::duration patience) {
  const std::lock_guard lock(mutex_);
  transfer.patience = patience;
}

}  // namespace ringattn
