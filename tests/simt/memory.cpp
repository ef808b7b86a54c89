#include "tests/simt/memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "tests/simt/config.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n) (void)0
#define ASAN_UNPOISON_MEMORY_REGION(p, n) (void)0
#endif

namespace simt {
namespace {

constexpr std::size_t kGuard = 1024;
constexpr unsigned char kCanary = 0xA5;

// Under AddressSanitizer a guard is unaddressable; otherwise it holds a pattern that is
// compared later. The pattern would trip the sanitizer, hence the two forms.
void draw_guard(unsigned char* p, std::size_t n) {
  std::memset(p, kCanary, n);
  ASAN_POISON_MEMORY_REGION(p, n);
}

bool guard_intact(const unsigned char* p, std::size_t n) {
#ifndef __SANITIZE_ADDRESS__
  for (std::size_t i = 0; i < n; ++i)
    if (p[i] != kCanary) return false;
#else
  (void)p, (void)n;
#endif
  return true;
}

struct Allocation {
  std::size_t bytes;  // as asked for
  GlobalShadow shadow;
};
struct Allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> live;  // by base address

  // The one that begins at or before the address; the caller checks that it reaches far enough.
  auto before(std::uintptr_t address) {
    auto it = live.upper_bound(address);
    return it == live.begin() ? live.end() : --it;
  }
};
Allocations& allocations() {
  static Allocations a;
  return a;
}

std::size_t rounded(std::size_t n) { return (n + 255) / 256 * 256; }

void check_guards_of(std::uintptr_t base, std::size_t bytes) {
  auto* p = reinterpret_cast<unsigned char*>(base);
  if (!guard_intact(p - kGuard, kGuard) || !guard_intact(p + bytes, rounded(bytes) - bytes + kGuard))
    throw Fault(FaultKind::out_of_bounds,
                "guard zone of a global allocation of " + std::to_string(bytes) + " bytes was overwritten");
}

}  // namespace

void SharedArena::reset(std::size_t bytes, std::uint32_t skew) {
  const std::size_t need = bytes + 2 * kGuard + 2048;
  skew_ = skew;
  if (need > capacity_) {
    storage_.reset(new unsigned char[need]);
    capacity_ = need;
  }
  ASAN_UNPOISON_MEMORY_REGION(storage_.get(), capacity_);
  // Pointers and 32-bit addresses agree modulo 1024, so a kernel may align either.
  const auto raw = reinterpret_cast<std::uintptr_t>(storage_.get()) + kGuard;
  data_ = reinterpret_cast<unsigned char*>((raw + 1023) / 1024 * 1024) + skew;
  size_ = bytes;
  std::memset(data_, kPoison, size_);
  draw_guard(data_ - kGuard, kGuard);
  draw_guard(data_ + size_, kGuard);
}

std::uint32_t SharedArena::address_of(const void* p, const Where& where) const {
  const auto offset = static_cast<const unsigned char*>(p) - data_;
  if (offset < 0 || static_cast<std::size_t>(offset) > size_)
    raise(FaultKind::out_of_bounds, "pointer is not into shared memory", where);
  return base() + static_cast<std::uint32_t>(offset);
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

void* global_allocate(std::size_t bytes) {
  auto* raw = static_cast<unsigned char*>(std::aligned_alloc(256, rounded(bytes) + 2 * kGuard));
  if (!raw) throw std::bad_alloc();
  unsigned char* p = raw + kGuard;
  std::memset(p, kPoison, bytes);
  draw_guard(raw, kGuard);
  draw_guard(p + bytes, rounded(bytes) - bytes + kGuard);
  std::lock_guard lock(allocations().mutex);
  allocations().live.emplace(reinterpret_cast<std::uintptr_t>(p), Allocation{bytes, GlobalShadow(bytes)});
  return p;
}

void global_free(void* p) {
  if (!p) return;
  const auto base = reinterpret_cast<std::uintptr_t>(p);
  {
    std::lock_guard lock(allocations().mutex);
    const auto it = allocations().live.find(base);
    if (it == allocations().live.end())
      throw Fault(FaultKind::usage, "cudaFree of a pointer that is not a live allocation");
    check_guards_of(base, it->second.bytes);
    ASAN_UNPOISON_MEMORY_REGION(static_cast<unsigned char*>(p) - kGuard,
                                rounded(it->second.bytes) + 2 * kGuard);
    std::memset(p, kPoison, it->second.bytes);  // a late reader without ASan gets NaN, with luck
    allocations().live.erase(it);
  }
  std::free(static_cast<unsigned char*>(p) - kGuard);
}

std::mutex& atomics_mutex() {
  static std::mutex m;
  return m;
}

std::size_t global_size(const void* p) {
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().live.find(reinterpret_cast<std::uintptr_t>(p));
  return it == allocations().live.end() ? 0 : it->second.bytes;
}

void check_global_guards() {
  std::lock_guard lock(allocations().mutex);
  for (const auto& [base, a] : allocations().live) check_guards_of(base, a.bytes);
}

void check_global(const void* p, std::size_t bytes, std::size_t align, Access access, const Where& where) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  if (address % align != 0)
    raise(FaultKind::misaligned, "global pointer for a " + std::to_string(align) + "-byte aligned access",
          where);
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().before(address);
  if (it == allocations().live.end())
    raise(FaultKind::out_of_bounds, "global pointer before every allocation", where);
  const std::size_t offset = address - it->first;
  if (offset + bytes > it->second.bytes)
    raise(FaultKind::out_of_bounds,
          "global offset " + std::to_string(offset) + " + " + std::to_string(bytes) +
              " of an allocation of " + std::to_string(it->second.bytes),
          where);
  if (config().race_check) it->second.shadow.access(offset, bytes, access, where);
}

void check_order(const void* p, std::size_t bytes, Access access, const Where& where) {
  if (!config().race_check) return;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().before(address);
  if (it == allocations().live.end() || address >= it->first + it->second.bytes) return;
  const std::size_t offset = address - it->first;
  if (offset + bytes > it->second.bytes)
    raise(FaultKind::out_of_bounds, "copy runs past the end of a global allocation", where);
  it->second.shadow.access(offset, bytes, access, where);
}

}  // namespace simt
