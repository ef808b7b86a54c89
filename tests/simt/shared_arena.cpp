#include "tests/simt/shared_arena.h"

#include <cstring>
#include <string>

#include "tests/simt/guard.h"

namespace simt {

void SharedArena::reset(std::size_t bytes, std::uint32_t skew) {
  const std::size_t need = bytes + 2 * kGuard + 2048;
  if (need > capacity_) {
    storage_.reset(new unsigned char[need]);
    capacity_ = need;
  }
  open_guard(storage_.get(), capacity_);
  skew_ = skew;
  size_ = bytes;
  // Pointers and 32-bit addresses agree modulo 1024, so a kernel may align either.
  const auto raw = reinterpret_cast<std::uintptr_t>(storage_.get()) + kGuard;
  data_ = storage_.get() + kGuard + ((raw + 1023) / 1024 * 1024 - raw) + skew;
  std::memset(data_, kPoison, size_);
  draw_guard(data_ - kGuard, kGuard);
  draw_guard(data_ + size_, kGuard);
}

std::uint32_t SharedArena::address_of(const void* p, const Where& where) const {
  const auto from = reinterpret_cast<std::uintptr_t>(data_), to = reinterpret_cast<std::uintptr_t>(p);
  if (to < from || to > from + size_)
    raise(FaultKind::out_of_bounds, "pointer is not into shared memory", where);
  return base() + static_cast<std::uint32_t>(to - from);
}

unsigned char* SharedArena::checked(std::uint32_t address, std::size_t bytes, std::size_t align,
                                    const Where& where) const {
  if (address % align != 0)
    raise(FaultKind::misaligned,
          "shared address " + std::to_string(address) + " for a " + std::to_string(align) +
              "-byte aligned access",
          where);
  if (address < base() || offset(address) + bytes > size_)
    raise(FaultKind::out_of_bounds,
          "shared offset " + std::to_string(std::int64_t{address} - base()) + " + " + std::to_string(bytes) +
              " of " + std::to_string(size_),
          where);
  return data_ + offset(address);
}

void SharedArena::check_guards() const {
  if (!guard_intact(data_ - kGuard, kGuard) || !guard_intact(data_ + size_, kGuard))
    throw Fault(FaultKind::out_of_bounds, "guard zone of shared memory was overwritten");
}

}  // namespace simt
