// Communicators of the stand-in for NCCL: how they come to be, and how they end.
#include <algorithm>
#include <cstring>

#include "tests/simt/fault.h"
#include "tests/simt/nccl.h"

namespace simt {
namespace {

// Both under the lock of the system, and kept to the end: queued operations refer to them, also after an
// abort.
std::map<std::string, std::shared_ptr<NcclClique>> cliques;
std::deque<NcclComm> comms;
thread_local NcclComm* made_last = nullptr;

bool complete(const NcclClique& clique) { return static_cast<int>(clique.members.size()) == clique.ranks; }

NcclComm* enter(const std::string& id, int ranks, std::pair<int, int> member, bool blocking) {
  NcclComm* const comm = System::get().locked([&] {
    auto& clique = cliques[id];
    if (!clique) clique = std::make_shared<NcclClique>();
    clique->ranks = ranks;
    clique->members.push_back(member);
    return &comms.emplace_back(
        NcclComm{.clique = clique, .id = id, .member = member, .blocking = blocking, .questions = 1});
  });
  System::get().changed();
  made_last = comm;
  if (blocking) {
    comm->questions = 0;
    System::get().drain(System::get().device(current_device), nullptr,
                        [clique = comm->clique] { return complete(*clique); });
  }
  return comm;
}

// A rank that is gone takes back what it has offered: its memory may be gone as well.
void withdraw(NcclComm& comm) {
  for (auto& [route, parts] : comm.clique->sends)
    if (route.first == comm.rank()) parts.clear();
  for (auto& [route, parts] : comm.clique->receives)
    if (route.second == comm.rank()) parts.clear();
}

}  // namespace

int NcclComm::rank() const {
  const auto& m = clique->members;
  return static_cast<int>(
      std::count_if(m.begin(), m.end(), [&](const auto& other) { return other < member; }));
}

void nccl_inject_error(ncclComm_t comm, ncclResult_t error) {
  System::get().locked([&] { comm->error = error; });
  System::get().changed();
}

void fail_all_communicators() {
  System::get().locked([] {
    for (NcclComm& comm : comms)
      if (!comm.ended) comm.error = ncclInternalError;
  });
  System::get().changed();
}

void nccl_inject_error(ncclResult_t error) { nccl_inject_error(made_last, error); }

int nccl_alive() {
  return System::get().locked([] {
    return static_cast<int>(
        std::count_if(comms.begin(), comms.end(), [](const auto& c) { return !c.ended; }));
  });
}

}  // namespace simt

using simt::System;

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGetVersion(int* version) { return *version = simt::nccl_version, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  *id = {};
  const std::string text = System::get().locked([&] { return "simt" + std::to_string(++count); });
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= ranks) return ncclInvalidArgument;
  const bool blocking = config == nullptr || config->blocking != 0;
  *comm = simt::enter(id.internal, ranks, {rank, 0}, blocking);
  return blocking ? ncclSuccess : ncclInProgress;
}

// All ranks give the same color here, which is all that the library asks for.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  if (comm == nullptr || comm->ended) return ncclInvalidArgument;
  const std::string id = comm->id + "/" + std::to_string(++comm->splits) + ":" + std::to_string(color);
  const bool blocking = config == nullptr ? comm->blocking : config->blocking != 0;
  *part = simt::enter(id, comm->clique->ranks, {key, comm->rank()}, blocking);
  return blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr || comm->ended || comm->finalizing) return ncclInvalidArgument;
  System::get().locked([&] {
    comm->finalizing = true;
    ++comm->clique->finalized;
  });
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  return simt::accused([&] {
    return System::get().locked([&] {
      if (comm->ended) throw simt::Fault(simt::FaultKind::usage, "an NCCL communicator is destroyed twice");
      if (const int left = simt::registrations_of(*comm); left > 0)
        throw simt::Fault(simt::FaultKind::usage, "an NCCL communicator is destroyed while memory is " +
                                                      std::string("registered with it, ") +
                                                      std::to_string(left) + " times");
      comm->ended = true;
      return ncclSuccess;
    });
  });
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclInvalidArgument;
  System::get().locked([&] {
    if (comm->ended)
      throw simt::Fault(simt::FaultKind::usage, "an NCCL communicator is aborted after its end");
    comm->aborted = comm->ended = true;
    if (!comm->finalizing) ++comm->clique->finalized;
    comm->unissued.clear();
    simt::withdraw(*comm);
    simt::end_registrations(*comm);
  });
  System::get().changed();
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) { return *count = comm->clique->ranks, ncclSuccess; }
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) { return *rank = comm->rank(), ncclSuccess; }
