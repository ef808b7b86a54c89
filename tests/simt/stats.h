// Counts of what kernels did: for speed figures, and for faults that cost only time.
#pragma once
#include <atomic>
#include <cstdint>

namespace simt {

struct Stats {
  std::atomic<std::uint64_t> mma{0}, wgmma{0};
  std::atomic<std::uint64_t> ldmatrix_phases{0};  // eight rows of 16 bytes, one cycle at best
  // Cycles beyond that: rows of one phase that share a group of four banks are read in turn.
  // A swizzle that is wrong (or missing) on both sides gives right numbers and shows only here.
  std::atomic<std::uint64_t> bank_conflicts{0};
  void reset() { mma = wgmma = ldmatrix_phases = bank_conflicts = 0; }
};

inline Stats& stats() {
  static Stats s;
  return s;
}

}  // namespace simt
