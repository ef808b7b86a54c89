#include "tests/simt/registers.h"

#include <string>

#include "tests/simt/warp.h"

namespace simt {

void RegisterFile::set(Thread& t, unsigned registers, const Where& where) {
  if (!registered_) {
    registered_ = true;
    t.block->final_checks.push_back([this, b = t.block] { check_end(*b); });
  }
  warp_collective<int>("setmaxnreg", ~0u, Convergence::aligned, 0, where, [](Lanes<int, int>) {});
  registers_[t.warp] = registers;
}

void RegisterFile::check_end(const Block& b) const {
  constexpr unsigned kFile = 64 * 1024;
  const unsigned warps = static_cast<unsigned>(b.warps.size());
  const unsigned at_launch = kFile / (warps * 32) / 8 * 8;
  unsigned total = 0;
  for (unsigned w = 0; w < warps; ++w) {
    if (registers_[w] != registers_[w / 4 * 4])
      throw Fault(FaultKind::divergence, "setmaxnreg: warps " + std::to_string(w / 4 * 4) + " and " +
                                             std::to_string(w) + " of one warpgroup asked for " +
                                             std::to_string(registers_[w / 4 * 4]) + " and " +
                                             std::to_string(registers_[w]) + " registers");
    total += 32 * (registers_[w] ? registers_[w] : at_launch);
  }
  if (total > kFile)
    throw Fault(FaultKind::usage, "setmaxnreg: the block asks for " + std::to_string(total) +
                                      " registers of " + std::to_string(kFile));
}

}  // namespace simt
