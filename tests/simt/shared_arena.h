// Dynamic shared memory of a block.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tests/simt/fault.h"

namespace simt {

// Shared addresses start here, as on sm_90 where the system keeps the first KiB: an address that was
// forgotten (0) or computed before the base was added is out of bounds.
inline constexpr std::uint32_t kSharedBase = 1024;

class SharedArena {
 public:
  // Poisons everything and redraws the guard zones. `skew`, a multiple of 16 below 1024, is where the arena
  // begins after a multiple of 1024: CUDA promises no more than 16-byte alignment.
  void reset(std::size_t bytes, std::uint32_t skew);
  unsigned char* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::uint32_t base() const { return kSharedBase + skew_; }
  std::uint32_t offset(std::uint32_t address) const { return address - base(); }

  std::uint32_t address_of(const void* p, const Where& where) const;
  // The only way from a 32-bit shared address to memory: range and alignment are checked here.
  unsigned char* checked(std::uint32_t address, std::size_t bytes, std::size_t align,
                         const Where& where) const;
  void check_guards() const;  // catches raw stores in builds without AddressSanitizer

 private:
  std::unique_ptr<unsigned char[]> storage_;
  std::size_t capacity_ = 0, size_ = 0;
  std::uint32_t skew_ = 0;
  unsigned char* data_ = nullptr;
};

}  // namespace simt
