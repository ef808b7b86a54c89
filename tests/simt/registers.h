// setmaxnreg: nothing to execute, but rules to keep.
#pragma once
#include <array>

#include "tests/simt/block.h"

namespace simt {

class RegisterFile {
 public:
  // Every lane of a warp, and all four warps of a warpgroup, must come to the same instruction, and a block
  // may hold no more than 64 Ki registers at its end.
  void set(Thread& t, unsigned registers, const Where& where);

 private:
  void check_end(const Block& b) const;

  bool registered_ = false;
  std::array<unsigned, kMaxWarps> registers_{};  // 0: as launched
};

}  // namespace simt
