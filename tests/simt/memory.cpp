#include "tests/simt/memory.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "tests/simt/block.h"
#include "tests/simt/config.h"
#include "tests/simt/global_access.h"
#include "tests/simt/guard.h"
#include "tests/simt/peers.h"

namespace simt {
namespace {

struct Allocation {
  MemoryKind kind;
  int device;
  std::size_t bytes;
  bool pooled;
  GlobalShadow shadow;
  int holders = 0;
};
struct Allocations {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> live;  // by base address
  std::map<int, std::size_t> used;            // device memory, by device

  // The one that begins at or before the address and reaches up to it.
  auto containing(std::uintptr_t address) {
    auto it = live.upper_bound(address);
    if (it == live.begin()) return live.end();
    --it;
    return address < it->first + std::max<std::size_t>(it->second.bytes, 1) + kGuard ? it : live.end();
  }
};
Allocations& allocations() {
  static Allocations a;
  return a;
}

std::size_t rounded(std::size_t n) { return (n + 255) / 256 * 256; }

void draw_guards(unsigned char* p, std::size_t bytes) {
  draw_guard(p - kGuard, kGuard);
  draw_guard(p + bytes, rounded(bytes) - bytes + kGuard);
}

// A broken guard is mended before it is reported, so that it is reported once.
void check_guards_of(std::uintptr_t base, std::size_t bytes) {
  auto* p = reinterpret_cast<unsigned char*>(base);
  if (guard_intact(p - kGuard, kGuard) && guard_intact(p + bytes, rounded(bytes) - bytes + kGuard)) return;
  draw_guards(p, bytes);
  throw Fault(FaultKind::out_of_bounds,
              "guard zone of a global allocation of " + std::to_string(bytes) + " bytes was overwritten");
}

void check_range(const Allocation& a, std::size_t offset, std::size_t bytes, const Where& where) {
  if (offset + bytes <= a.bytes) return;
  raise(FaultKind::out_of_bounds,
        "global offset " + std::to_string(offset) + " + " + std::to_string(bytes) + " of an allocation of " +
            std::to_string(a.bytes),
        where);
}

}  // namespace

std::mutex& atomics_mutex() {
  static std::mutex m;
  return m;
}

void* allocate(MemoryKind kind, int device, std::size_t bytes, bool pooled) {
  std::lock_guard lock(allocations().mutex);
  std::size_t& used = allocations().used[device];
  if (kind == MemoryKind::device && bytes > config().device_bytes - used) return nullptr;
  auto* raw = static_cast<unsigned char*>(std::aligned_alloc(256, rounded(bytes) + 2 * kGuard));
  if (!raw) return nullptr;
  unsigned char* p = raw + kGuard;
  std::memset(p, kPoison, bytes);
  draw_guards(p, bytes);
  allocations().live.emplace(reinterpret_cast<std::uintptr_t>(p),
                             Allocation{kind, device, bytes, pooled, GlobalShadow(bytes)});
  if (kind == MemoryKind::device) used += bytes;
  return p;
}

bool release(MemoryKind kind, void* p) {
  const auto base = reinterpret_cast<std::uintptr_t>(p);
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().live.find(base);
  if (it == allocations().live.end() || it->second.kind != kind) return false;
  const std::size_t bytes = it->second.bytes;
  check_guards_of(base, bytes);
  if (std::exchange(it->second.holders, 0) > 0)
    throw Fault(FaultKind::usage, "memory of " + std::to_string(bytes) +
                                      " bytes is freed while it is registered with an NCCL communicator");
  if (kind == MemoryKind::device) allocations().used[it->second.device] -= bytes;
  allocations().live.erase(it);
  auto* const raw = static_cast<unsigned char*>(p) - kGuard;
  open_guard(raw, rounded(bytes) + 2 * kGuard);
  std::memset(p, kPoison, bytes);  // a late reader without the sanitizer gets NaN, with luck
  std::free(raw);
  return true;
}

std::optional<AllocationInfo> find_allocation(const void* p) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().containing(address);
  if (it == allocations().live.end() || address > it->first + it->second.bytes) return std::nullopt;
  return AllocationInfo{it->second.kind, it->second.device, it->second.bytes,
                        reinterpret_cast<void*>(it->first), it->second.pooled};
}

void hold(const void* p, int n) {
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().containing(reinterpret_cast<std::uintptr_t>(p));
  if (it != allocations().live.end()) it->second.holders += n;
}

std::size_t allocated_bytes(int device) {
  std::lock_guard lock(allocations().mutex);
  return allocations().used[device];
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
  const auto it = allocations().containing(address);
  if (it == allocations().live.end())
    raise(FaultKind::out_of_bounds,
          "global pointer into no live device or pinned allocation (pageable host memory?)", where);
  Allocation& a = it->second;
  if (a.kind == MemoryKind::device && acting && !reaches(acting->device, a.device, a.pooled))
    raise(
        FaultKind::usage,
        "device " + std::to_string(acting->device) + " touches memory of device " + std::to_string(a.device),
        where);
  const std::size_t offset = address - it->first;
  check_range(a, offset, bytes, where);
  if (config().race_check) a.shadow.access(offset, bytes, access, where);
}

void check_order(const void* p, std::size_t bytes, Access access, const Where& where) {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  std::lock_guard lock(allocations().mutex);
  const auto it = allocations().containing(address);
  if (it == allocations().live.end()) return;
  const std::size_t offset = address - it->first;
  check_range(it->second, offset, bytes, where);
  if (config().race_check) it->second.shadow.access(offset, bytes, access, where);
}

void wait_global(const int* p, int value, const Where& where) {
  check_global(p, sizeof(int), alignof(int), Access::atomic, where);
  Thread& t = self();
  const std::function<bool()> come = [&] {
    std::lock_guard lock(atomics_mutex());
    return *p == value;
  };
  t.block->wait_until(t, "a counter of other blocks", come, where);
  t.block->acquire(p);
}

}  // namespace simt
