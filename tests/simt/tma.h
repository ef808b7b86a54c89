// TMA tile loads. As with cp.async, the destination is poison from the issue on, and the data land as late
// and in as bad an order as the program allows: whenever the scheduler lets the engine take a step.
#pragma once
#include <cuda.h>

#include <array>
#include <cstdint>
#include <vector>

#include "tests/simt/block.h"

namespace simt {

class TmaEngine {
 public:
  struct Coordinates {
    std::array<int, 4> at;
    unsigned rank;
    Coordinates(int x, int y, int z) : at{x, y, z, 0}, rank(3) {}
    Coordinates(int x, int y, int z, int w) : at{x, y, z, w}, rank(4) {}
  };
  void load(Thread& t, std::uint32_t destination, const CUtensorMap& map, std::uint32_t barrier,
            const Coordinates& at, const Where& where);

 private:
  struct Pending {
    std::uint32_t destination, barrier, bytes;
    CUtensorMap map;
    std::array<int, 4> at;
    Clock published;
    Where where;
  };
  bool step(Block& b);  // lands one copy, any
  static void land(Block& b, const Pending& p);

  bool registered_ = false;
  std::vector<Pending> pending_;
};

}  // namespace simt

// What the driver's function of this name accepts of such maps; CUDA_ERROR_INVALID_VALUE otherwise. The
// program finds it through cudaGetDriverEntryPointByVersion.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
