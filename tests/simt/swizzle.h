// The 128-byte swizzle of TMA and wgmma, and what a wgmma shared-memory descriptor means.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/simt/fault.h"

namespace simt {

// Within every 1024 bytes, the 16-byte chunk number of a 128-byte row is XORed with the row number. Both
// units work on the final address, so a tile that lies off a multiple of 1024 is read back rightly only if
// both know of it.
inline std::uint32_t swizzle_128b(std::uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

enum class Major { k = 0, mn = 1 };  // as ringattn::ptx::Major

// One operand of a wgmma of depth 16: rows of A or columns of B, counted by x, by 16 elements of 2 bytes,
// counted by k.
struct SmemOperand {
  std::uint32_t start, leading, stride;
  Major major;

  SmemOperand(std::uint64_t descriptor, Major major_, const Where& where)
      : start(field(descriptor, 0)),
        leading(field(descriptor, 16)),
        stride(field(descriptor, 32)),
        major(major_) {
    if (descriptor >> 62 != 1)
      raise(FaultKind::usage, "descriptor: only the 128-byte swizzle (1) is modelled", where);
    if (descriptor >> 49 & 7) raise(FaultKind::usage, "descriptor: a base offset is not modelled", where);
  }

  // Address of element (x, k).
  // K-major: rows of 128 bytes, 8 rows are an atom, `stride` leads to the next 8 rows; `leading` is not used.
  // MN-major: 64 x are a row of 128 bytes, 8 k are an atom, `stride` leads to the next 8 k, `leading` to the
  // next 64 x.
  std::uint32_t address(unsigned x, unsigned k) const {
    return swizzle_128b(major == Major::k
                            ? start + x / 8 * stride + x % 8 * 128 + k * 2
                            : start + x / 64 * leading + x % 64 * 2 + k / 8 * stride + k % 8 * 128);
  }
  // The 16-byte chunks that hold x0 .. x0 + count - 1, in no particular order.
  std::vector<std::uint32_t> chunks(unsigned x0, unsigned count) const {
    std::vector<std::uint32_t> c;
    if (major == Major::k) {
      for (unsigned x = x0; x < x0 + count; ++x)
        for (unsigned k = 0; k < 16; k += 8) c.push_back(address(x, k));
    } else {
      for (unsigned k = 0; k < 16; ++k)
        for (unsigned x = x0; x < x0 + count; x += 8) c.push_back(address(x, k));
    }
    return c;
  }

 private:
  static std::uint32_t field(std::uint64_t descriptor, unsigned bit) {  // 14 bits, in units of 16 bytes
    return static_cast<std::uint32_t>(descriptor >> bit & 0x3FFF) << 4;
  }
};

}  // namespace simt
