// A thread's ordinary accesses to shared memory: range, alignment and order are checked, and stores are kept
// apart from what the async proxy has seen.
#pragma once
#include <cstring>
#include <type_traits>

#include "tests/simt/block.h"

namespace simt {

template <class T>
T load_shared(std::uint32_t address, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  Thread& t = self();
  const unsigned char* p = t.block->shared.checked(address, sizeof(T), sizeof(T), where);
  if (config().race_check) t.block->race.read(t.place(), t.block->shared.offset(address), sizeof(T), where);
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <class T>
void store_shared(std::uint32_t address, const T& value, const Where& where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 16);
  Thread& t = self();
  unsigned char* p = t.block->shared.checked(address, sizeof(T), sizeof(T), where);
  if (config().race_check) t.block->race.write(t.place(), t.block->shared.offset(address), sizeof(T), where);
  std::memcpy(p, &value, sizeof(T));
}

}  // namespace simt
