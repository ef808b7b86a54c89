// Operations of the stand-in for NCCL: groups, sends, receives.
//
// A group is one operation of its stream. When it reaches the head of the stream all its sends and receives
// are posted; it is done when every one has met its counterpart. So a ring of ungrouped send-then-receive has
// every head waiting for a receive that is queued behind it, and System reports the deadlock. (Real NCCL may
// get away with it while messages are small.)
#include "tests/simt/nccl.h"

#include <algorithm>
#include <cstring>

#include "tests/simt/fault.h"
#include "tests/simt/memory.h"

namespace simt {
namespace {

struct Call {
  std::shared_ptr<NcclPart> part;
  NcclComm* comm;
  Stream* stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Call> group;

// The operations reach their streams after so many questions for the state of the communicator.
constexpr int kQuestionsUntilIssued = 2;

void meet(NcclPart& from, NcclPart& to, const std::pair<int, int>& route) {
  if (from.bytes != to.bytes) {
    throw Fault(FaultKind::usage, "ncclSend of " + std::to_string(from.bytes) + " bytes from rank " +
                                      std::to_string(route.first) + " meets ncclRecv of " +
                                      std::to_string(to.bytes) + " on rank " + std::to_string(route.second));
  }
  if (from.registered != to.registered) {
    throw Fault(FaultKind::usage, std::string("memory that is ") + (from.registered ? "" : "not ") +
                                      "registered on rank " + std::to_string(route.first) +
                                      " meets memory that is " + (to.registered ? "" : "not ") + "on rank " +
                                      std::to_string(route.second));
  }
  count_message(from.registered);
  // Taken now: the sender may reuse its buffer as soon as its group is done, which can be before the receiver
  // gets to run.
  const auto* bytes = static_cast<const unsigned char*>(from.data);
  to.message.assign(bytes, bytes + from.bytes);
  to.sender_clock = from.actor->clock;
  from.matched = to.matched = true;
}

void post(NcclComm& comm, const std::shared_ptr<NcclPart>& part) {
  {
    const ActingAs stream(part->actor);
    check_global(part->data, part->bytes, 1, part->send ? Access::read : Access::write, part->where);
  }
  // From here on the hardware may write the destination at any moment.
  if (!part->send) std::memset(part->data, kPoison, part->bytes);
  const auto route = part->send ? std::pair(comm.rank(), part->peer) : std::pair(part->peer, comm.rank());
  auto& sends = comm.clique->sends[route];
  auto& receives = comm.clique->receives[route];
  (part->send ? sends : receives).push_back(part);
  while (!sends.empty() && !receives.empty()) {
    meet(*sends.front(), *receives.front(), route);
    sends.pop_front();
    receives.pop_front();
  }
}

// Asked at the head of the stream with the lock of the system held.
bool group_ready(NcclComm& comm, Stream& stream, const NcclParts& parts, bool& posted,
                 const StreamClock& enqueued_after) {
  if (comm.aborted) return true;
  if (comm.error != ncclSuccess) return false;
  if (!posted) {
    posted = true;
    // Its place in the order begins here, not when it is done.
    join(stream.actor.clock, enqueued_after);
    stream.actor.begin_operation();
    for (const auto& part : parts) post(comm, part);
  }
  return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part->matched; });
}

void issue(NcclComm* comm, Stream* stream, const NcclParts& parts) {
  const char* name = parts.size() > 1 ? "nccl group" : parts[0]->send ? "ncclSend" : "ncclRecv";
  for (const auto& part : parts) part->actor = &stream->actor;
  const auto posted = std::make_shared<bool>(false);
  const auto ready = [=, enqueued_after = host_clock] {
    return group_ready(*comm, *stream, parts, *posted, enqueued_after);
  };
  const auto run = [=] {
    for (const auto& part : parts) {
      if (part->send || !part->matched) continue;
      System::get().locked([&] { join(acting->clock, part->sender_clock); });
      std::memcpy(part->data, part->message.data(), part->bytes);
    }
    System::get().locked([&] { --comm->queued; });
  };
  System::get().locked([&] { ++comm->queued; });
  System::get().push(*stream, {name, ready, run});
}

ncclResult_t call(bool send, void* data, std::size_t n, int peer, NcclComm* comm, Stream* s,
                  const Where& where) {
  if (comm == nullptr || s == nullptr || peer < 0 || peer >= comm->clique->ranks) return ncclInvalidArgument;
  if (comm->ended) throw Fault(FaultKind::usage, "an NCCL communicator is used after its end");
  if (comm->questions > 0) throw Fault(FaultKind::usage, "an NCCL communicator is used while in progress");
  const bool registered = System::get().locked([&] { return is_registered(*comm, data, n); });
  group.push_back(
      {std::make_shared<NcclPart>(NcclPart{
           .send = send, .peer = peer, .data = data, .bytes = n, .where = where, .registered = registered}),
       comm, s});
  if (group_depth > 0) return ncclSuccess;
  ++group_depth;
  return ncclGroupEnd();
}

}  // namespace
}  // namespace simt

using simt::System;

ncclResult_t ncclGroupStart() { return ++simt::group_depth, ncclSuccess; }

ncclResult_t ncclGroupEnd() {
  if (simt::group_depth == 0) return ncclInvalidUsage;
  if (--simt::group_depth > 0) return ncclSuccess;
  // One operation a communicator and stream.
  std::map<std::pair<simt::NcclComm*, simt::Stream*>, simt::NcclParts> parts;
  for (auto& call : simt::group) parts[{call.comm, call.stream}].push_back(call.part);
  simt::group.clear();
  ncclResult_t result = ncclSuccess;
  for (auto& entry : parts) {
    simt::NcclComm& comm = *entry.first.first;
    simt::Stream* const stream = entry.first.second;
    if (comm.blocking) {
      simt::issue(&comm, stream, entry.second);
      continue;
    }
    System::get().locked([&] {
      comm.unissued.emplace_back(stream, entry.second);
      comm.questions = simt::kQuestionsUntilIssued;
    });
    result = ncclInProgress;
  }
  return result;
}

ncclResult_t ncclSend(const void* from, std::size_t n, ncclDataType_t, int peer, ncclComm_t comm,
                      cudaStream_t s, simt::Where where) {
  return simt::call(true, const_cast<void*>(from), n, peer, comm, s, where);
}

ncclResult_t ncclRecv(void* to, std::size_t n, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t s,
                      simt::Where where) {
  return simt::call(false, to, n, peer, comm, s, where);
}

// Whoever asks makes what is in progress progress.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr) return ncclInvalidArgument;
  std::vector<std::pair<simt::Stream*, simt::NcclParts>> issued;
  *result = System::get().locked([&] {
    const simt::NcclClique& clique = *comm->clique;
    if (comm->error != ncclSuccess) return comm->error;
    if (static_cast<int>(clique.members.size()) < clique.ranks) return ncclInProgress;
    if (comm->questions > 0 && --comm->questions > 0) return ncclInProgress;
    issued.swap(comm->unissued);
    if (comm->finalizing && (comm->queued > 0 || clique.finalized < clique.ranks)) return ncclInProgress;
    return ncclSuccess;
  });
  for (const auto& [stream, parts] : issued) simt::issue(comm, stream, parts);
  return ncclSuccess;
}
