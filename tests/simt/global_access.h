// A thread's accesses to global memory, checked for range, alignment, kind of memory and order.
#pragma once
#include <mutex>
#include <type_traits>

#include "tests/simt/block.h"
#include "tests/simt/memory.h"

namespace simt {

template <class T>
T load_global(const T* p, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T>);
  check_global(p, sizeof(T), alignof(T), Access::read, where);
  return *p;
}
template <class T>
void store_global(T* p, const T& value, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T>);
  check_global(p, sizeof(T), alignof(T), Access::write, where);
  *p = value;
}
// Blocks of a launch may share OS threads, so the addition itself is guarded.
std::mutex& atomics_mutex();
template <class T>
T atomic_add_global(T* p, T value, const Where& where) {
  check_global(p, sizeof(T), alignof(T), Access::atomic, where);
  Thread& t = self();
  t.block->release(t, p);
  std::lock_guard lock(atomics_mutex());
  const T before = *p;
  *p = before + value;
  return before;
}
// Until *p is `value`; what those who made it so published holds from here on.
void wait_global(const int* p, int value, const Where& where);

}  // namespace simt
