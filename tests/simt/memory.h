// The table of live allocations: device memory and pinned host memory. Each has guard zones, poison and a
// shadow that remembers who wrote and read it last.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

#include "tests/simt/fault.h"
#include "tests/simt/guard.h"
#include "tests/simt/order.h"

namespace simt {

enum class MemoryKind { device, pinned };

struct AllocationInfo {
  MemoryKind kind;
  int device;         // that it was made on
  std::size_t bytes;  // as asked for
  void* base;
  bool pooled;  // by cudaMallocAsync: whether other devices may touch it is the pool's affair
};

// Null when the device has no room left (config().device_bytes).
void* allocate(MemoryKind kind, int device, std::size_t bytes, bool pooled = false);
// False for a pointer that is not the start of a live allocation of this kind. Throws when a guard was
// overwritten, and when somebody holds it.
bool release(MemoryKind kind, void* p);
// n = 1: somebody relies on the live allocation that p points into, n = -1: and does so no longer.
void hold(const void* p, int n);
// The live allocation that p points into; none for pageable memory.
std::optional<AllocationInfo> find_allocation(const void* p);
std::size_t allocated_bytes(int device);
void check_global_guards();

// Raises unless [p, p + bytes) lies inside one live allocation that the kernel's device can reach, p has the
// alignment, and the access is ordered after those of other streams, and of other blocks, that it conflicts
// with.
void check_global(const void* p, std::size_t bytes, std::size_t align, Access access, const Where& where);
// The order and range check alone, for the ends of a copy, which may as well lie in pageable memory.
void check_order(const void* p, std::size_t bytes, Access access, const Where& where);

// Blocks of a launch may run on several host threads, so the addition of an atomic is guarded.
std::mutex& atomics_mutex();

}  // namespace simt
