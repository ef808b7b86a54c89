// cp.async of one thread: data land as late as the program allows.
//
// From issue until the matching wait the hardware may write the destination at any moment.
// So the destination turns to poison at issue (a reader that was not yet done, or that comes
// too early, sees NaN) and the source is read only when the wait forces the copy to land
// (a source that was overwritten too early shows as well).
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/simt/fault.h"

namespace simt {

struct Block;
struct Thread;

struct PendingCopy {
  std::uint32_t destination;
  const void* source;
  std::uint32_t bytes, source_bytes;  // source_bytes < bytes: the rest is filled with zeros
  Where where;
};

class CopyQueue {
 public:
  void clear() { groups_.clear(), open_.clear(); }
  void issue(Thread& t, const PendingCopy& copy);
  void commit() { groups_.push_back(std::move(open_)), open_.clear(); }
  void wait_group(Thread& t, unsigned newest_left_in_flight);
  void wait_all(Thread& t) { commit(), wait_group(t, 0); }

 private:
  std::deque<std::vector<PendingCopy>> groups_;  // committed, oldest first
  std::vector<PendingCopy> open_;                // issued since the last commit
};

}  // namespace simt
