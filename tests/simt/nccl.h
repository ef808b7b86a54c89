// What the stand-in for NCCL keeps: communicators, and operations that wait for their counterpart.
#pragma once
#include <nccl.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simt/fault.h"
#include "tests/simt/stream.h"

namespace simt {

struct NcclPart {  // one send or receive
  bool send = false;
  int peer = 0;
  void* data = nullptr;  // of a send: only read
  std::size_t bytes = 0;
  Where where{};
  bool registered = false;
  bool matched = false;
  Actor* actor = nullptr;                // the stream it was posted on
  std::vector<unsigned char> message{};  // of a receive: taken from the sender when they met
  StreamClock sender_clock{};
};
using NcclParts = std::vector<std::shared_ptr<NcclPart>>;

struct NcclClique {  // the communicator as all ranks see it
  int ranks = 0;
  std::vector<std::pair<int, int>> members;  // (key, rank in what it was split from), in the order they came
  int finalized = 0;                         // or aborted
  // Posted and not yet matched, by (from, to), in order.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<NcclPart>>> sends, receives;
};

struct NcclComm {  // as one rank sees it
  std::shared_ptr<NcclClique> clique;
  std::string id;  // of the clique
  std::pair<int, int> member{};
  bool blocking = true;
  int splits = 0;
  int questions = 0;  // "in progress" is the answer to so many more
  std::vector<std::pair<Stream*, NcclParts>> unissued{};
  int queued = 0;  // operations that are on a stream and have not run
  bool finalizing = false, ended = false, aborted = false;
  ncclResult_t error = ncclSuccess;

  int rank() const;  // when all members have come
};

// Under the lock of the system. Whether the bytes lie in memory that is registered with the communicator.
bool is_registered(const NcclComm& comm, const void* data, std::size_t bytes);
int registrations_of(const NcclComm& comm);
void end_registrations(const NcclComm& comm);  // as an abort does
void count_message(bool zero_copy);

// Every communicator has failed, so that nobody waits for it to its deadline.
void fail_all_communicators();

// A fault in a call that may come from a destructor, which swallows what it throws, ends the run of all ranks
// all the same.
template <class F>
ncclResult_t accused(F f) {
  try {
    return f();
  } catch (const Fault&) {
    if (!System::get().blame(std::current_exception())) throw;
    fail_all_communicators();
    return ncclInvalidUsage;
  }
}

}  // namespace simt
