// cp.reduce.async.bulk: the copy unit adds a run of floats in shared memory to global memory.
//
// The source belongs to the unit from the issue until wait_read: it is read at the issue and compared at the
// wait, so data that are not there yet show, and so do data replaced too early. The sums land at wait, or
// when the block has ended if nobody waits for them. Blocks that add to one place have to be in order there.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "tests/simt/block.h"

namespace simt {

class BulkReduce {
 public:
  void issue(Thread& t, float* to, std::uint32_t from, std::uint32_t bytes, const Where& where);
  void commit(Thread& t);
  void wait_read(Thread& t, unsigned newest_left);
  void wait(Thread& t, unsigned newest_left);

 private:
  struct Operation {
    float* to;
    std::uint32_t from, bytes;
    std::vector<unsigned char> data;  // as read at the issue
    Where where;
    bool read = false;  // the source is free again
  };
  struct PerThread {
    std::deque<std::vector<Operation>> groups;  // committed, oldest first
    std::vector<Operation> open;
  };
  static void finish_read(Thread& t, Operation& op);
  static void land(const Operation& op);
  void end();

  bool registered_ = false;
  std::map<unsigned, PerThread> threads_;
};

}  // namespace simt
