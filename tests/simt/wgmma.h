// wgmma.mma_async m64nNk16, 16-bit operands, fp32 sums: A in shared memory or registers, B in shared memory.
//
// The accumulators of an issued product are undefined until the wait_group that covers it. So they turn into
// a NaN pattern at the issue and get their values at the wait: reading early spoils the result, writing early
// is found because the pattern is gone. Operands belong to the tensor core from issue to wait: shared memory
// is read at the issue (data that have not arrived show) and compared at the wait (data replaced too early
// show); A registers likewise.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "tests/simt/block.h"
#include "tests/simt/element.h"
#include "tests/simt/swizzle.h"

namespace simt {

struct WgmmaCall {  // one thread's arguments
  Element element;
  unsigned n;
  float* d;                          // n / 2 registers
  const std::uint32_t* a_registers;  // 4, or null: A comes from the descriptor
  std::uint64_t a, b;                // descriptors
  Major a_major, b_major;
  bool accumulate;

  bool agrees_with(const WgmmaCall& o) const {
    return element == o.element && n == o.n && !a_registers == !o.a_registers && a == o.a && b == o.b &&
           a_major == o.a_major && b_major == o.b_major && accumulate == o.accumulate;
  }
};

class Wgmma {
 public:
  void fence(Thread& t) { threads_[t.linear].fenced = true; }
  void issue(Thread& t, const WgmmaCall& call, const Where& where);
  void commit(Thread& t);
  void wait(Thread& t, unsigned groups_left, const Where& where);
  // Faults when the accumulator that starts at `d`, if it is in flight, was written since its issue.
  void check_untouched(Thread& t, const float* d, const Where& where);

 private:
  struct Operation {  // one wgmma of a warpgroup, joined by its 128 threads one after the other
    WgmmaCall call;   // of the first thread; the others must agree
    Where where;
    unsigned joined = 0, retired = 0;
    std::array<std::array<std::uint32_t, 4>, 128> a_registers;
    std::array<std::vector<std::uint32_t>, 4> chunks;    // what each warp reads, 16 bytes each
    std::array<std::vector<unsigned char>, 4> contents;  // and what was there at its issue
    std::array<unsigned, 4> joined_of_warp{}, retired_of_warp{};
    std::vector<float> product;  // 64 x n, once all have joined
  };
  struct InFlight {  // an accumulator between issue and wait
    std::vector<float> value;
    unsigned operations = 0;
  };
  struct PerThread {
    bool fenced = false;
    std::size_t issued = 0, retired = 0;
    std::deque<std::size_t> groups;  // committed: number of operations issued by then
    std::map<const float*, InFlight> accumulators;
    std::deque<WgmmaCall> calls;  // of the operations not yet retired
  };
  struct Warpgroup {
    std::vector<std::unique_ptr<Operation>> operations;
  };

  void register_checks(Block& b);
  static void join_operation(Thread& t, Operation& op, const WgmmaCall& call, const Where& where);
  static void read_operands(Thread& t, Operation& op, unsigned warp_in_group, const Where& where, bool first);
  static void compute(const Block& b, Operation& op);
  void retire(Thread& t, PerThread& mine, Operation& op, const Where& where);

  bool registered_ = false;
  std::map<unsigned, PerThread> threads_;
  std::map<unsigned, Warpgroup> groups_;
};

}  // namespace simt
