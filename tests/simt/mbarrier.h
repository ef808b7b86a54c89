// mbarrier objects of a block. Their state lies beside the arena, keyed by address.
#pragma once
#include <cstdint>
#include <map>

#include "tests/simt/block.h"

namespace simt {

struct MBarrier {
  unsigned count = 0, pending = 0;  // arrivals that a phase needs, and that the current one still needs
  std::int64_t tx = 0;              // bytes announced and not yet landed; below 0 while bytes ran ahead
  std::uint64_t phase = 0;          // phases completed; the current one has parity phase % 2
  bool fenced = false;              // its init is visible to TMA
  unsigned owner = 0;               // the thread that initialised it
  Clock open, done;  // what the arrivals of the current phase, of the last finished one, published
};

class MBarriers {
 public:
  void init(Thread& t, std::uint32_t address, unsigned count, const Where& where);
  void init_fence(Thread& t);
  void arrive(Thread& t, std::uint32_t address, const Where& where);
  void expect_tx(Thread& t, std::uint32_t address, std::uint32_t bytes, const Where& where);
  void wait(Thread& t, std::uint32_t address, unsigned parity, const Where& where);

  // For TMA. `published` is what the copy's issuer had done before the issue, and the copy itself.
  void check_for_tma(Thread& t, std::uint32_t address, const Where& where);
  void complete_tx(std::uint32_t address, std::uint32_t bytes, const Clock& published);

 private:
  MBarrier& find(Thread& t, std::uint32_t address, const Where& where);
  static void advance_if_done(MBarrier& b);

  std::map<std::uint32_t, MBarrier> barriers_;
};

}  // namespace simt
