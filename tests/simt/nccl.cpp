// Point-to-point NCCL between rank threads.
//
// A group is one operation of its stream. When it reaches the head of the stream all its sends
// and receives are posted; it is done when every one has met its counterpart. So a ring of
// ungrouped send-then-receive has every head waiting for a receive that is queued behind it,
// and System reports the deadlock. (Real NCCL may get away with it while messages are small.)
#include <nccl.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/simt/fault.h"
#include "tests/simt/memory.h"

namespace simt {

struct Part {  // one send or receive
  bool send;
  int peer;
  void* data;  // of a send: only read
  std::size_t bytes;
  Where where;
  bool matched = false;
  Actor* actor = nullptr;                // the stream it was posted on
  std::vector<unsigned char> message{};  // of a receive: taken from the sender when they met
  StreamClock sender_clock{};
};

struct Clique {  // the communicator as all ranks see it
  int ranks = 0;
  // Posted and not yet matched, per (from, to), in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>> sends, receives;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank;
  bool aborted = false;
  ncclResult_t error = ncclSuccess;
};

namespace {

// Both under the system lock, and kept to the end: queued operations refer to them, also after
// an abort.
std::map<std::string, std::shared_ptr<Clique>> cliques;  // by unique id
std::deque<Comm> comms;

struct Call {
  std::shared_ptr<Part> part;
  Comm* comm;
  Stream* stream;
};
thread_local int group_depth = 0;
thread_local std::vector<Call> group;

void post(Comm& comm, const std::shared_ptr<Part>& part) {
  {
    const ActingAs stream(part->actor);
    check_global(part->data, part->bytes, 1, part->send ? Access::read : Access::write, part->where);
  }
  // From here on the hardware may write the destination at any moment.
  if (!part->send) std::memset(part->data, kPoison, part->bytes);
  const auto route = part->send ? std::pair(comm.rank, part->peer) : std::pair(part->peer, comm.rank);
  auto& sends = comm.clique->sends[route];
  auto& receives = comm.clique->receives[route];
  (part->send ? sends : receives).push_back(part);
  while (!sends.empty() && !receives.empty()) {
    Part &from = *sends.front(), &to = *receives.front();
    if (from.bytes != to.bytes)
      throw Fault(FaultKind::usage, "ncclSend of " + std::to_string(from.bytes) + " bytes from rank " +
                                        std::to_string(route.first) + " meets ncclRecv of " +
                                        std::to_string(to.bytes) + " on rank " +
                                        std::to_string(route.second));
    // Taken now: the sender may reuse its buffer as soon as its group is done, which can be
    // before the receiver gets to run.
    const auto* bytes = static_cast<const unsigned char*>(from.data);
    to.message.assign(bytes, bytes + from.bytes);
    to.sender_clock = from.actor->clock;
    from.matched = to.matched = true;
    sends.pop_front(), receives.pop_front();
  }
}

void enqueue(Comm* comm, Stream* stream, std::vector<std::shared_ptr<Part>> parts) {
  const char* name = parts.size() > 1 ? "nccl group" : parts[0]->send ? "ncclSend" : "ncclRecv";
  for (auto& p : parts) p->actor = &stream->actor;
  auto posted = std::make_shared<bool>(false);
  auto ready = [=, enqueued_after = host_clock] {
    if (comm->aborted) return true;
    if (comm->error != ncclSuccess) return false;
    if (!*posted) {
      *posted = true;
      // Its place in the order begins here, not when it is done.
      join(stream->actor.clock, enqueued_after);
      stream->actor.begin_operation();
      for (const auto& p : parts) post(*comm, p);
    }
    for (const auto& p : parts)
      if (!p->matched) return false;
    return true;
  };
  auto run = [=] {
    for (const auto& p : parts) {
      if (p->send || !p->matched) continue;
      join(acting->clock, p->sender_clock);
      std::memcpy(p->data, p->message.data(), p->bytes);
    }
  };
  System::get().push(*stream, {name, ready, run});
}

ncclResult_t call(bool send, void* data, std::size_t n, ncclDataType_t type, int peer, Comm* comm, Stream* s,
                  const Where& where) {
  static constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  if (!comm || !s || peer < 0 || peer >= comm->clique->ranks) return ncclInvalidArgument;
  const std::size_t bytes = n * kBytes[type];
  group.push_back({std::make_shared<Part>(Part{send, peer, data, bytes, where}), comm, s});
  if (group_depth > 0) return ncclSuccess;
  ++group_depth;
  return ncclGroupEnd();
}

}  // namespace

void nccl_inject_error(ncclComm_t comm, ncclResult_t error) {
  System::get().locked([&] { comm->error = error; });
  System::get().changed();
}

}  // namespace simt

using simt::System;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  *id = {};
  const std::string text = System::get().locked([&] { return "simt" + std::to_string(++count); });
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  System::get().locked([&] {
    auto& clique = simt::cliques[id.internal];
    if (!clique) clique = std::make_shared<simt::Clique>();
    clique->ranks = ranks;
    *comm = &simt::comms.emplace_back(simt::Comm{clique, rank});
  });
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  System::get().locked([&] { comm->aborted = true; });
  System::get().changed();
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  *result = System::get().locked([&] { return comm->error; });
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* count) { return *count = comm->clique->ranks, ncclSuccess; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) { return *rank = comm->rank, ncclSuccess; }

ncclResult_t ncclGroupStart() { return ++simt::group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  if (simt::group_depth == 0) return ncclInvalidUsage;
  if (--simt::group_depth > 0) return ncclSuccess;
  // One operation per communicator and stream.
  std::map<std::pair<simt::Comm*, simt::Stream*>, std::vector<std::shared_ptr<simt::Part>>> parts;
  for (auto& c : simt::group) parts[{c.comm, c.stream}].push_back(c.part);
  simt::group.clear();
  for (auto& [where, list] : parts) simt::enqueue(where.first, where.second, std::move(list));
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t s, simt::Where where) {
  return simt::call(true, const_cast<void*>(from), n, type, peer, comm, s, where);
}
ncclResult_t ncclRecv(void* to, std::size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t s,
                      simt::Where where) {
  return simt::call(false, to, n, type, peer, comm, s, where);
}
