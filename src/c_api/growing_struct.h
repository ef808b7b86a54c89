// Structs that grow from one release to the next, and callers that were built against another one.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "src/c_api/status.h"
#include "src/refuse.h"

namespace ringattn::c_api {

// Size of a struct in the first release that had it: no caller has a smaller one. When a field is added this
// becomes the offset of the first field that was.
template <class Struct>
inline constexpr std::size_t kFirstSize = sizeof(Struct);
template <>
inline constexpr std::size_t kFirstSize<ringattn_options> = offsetof(ringattn_options, backend);
template <>
inline constexpr std::size_t kFirstSize<ringattn_forward_args> = offsetof(ringattn_forward_args, space);
template <>
inline constexpr std::size_t kFirstSize<ringattn_backward_args> = offsetof(ringattn_backward_args, space);

// More than any of them will have: a struct_size beyond it was never set.
inline constexpr std::size_t kLargestSize = 4096;

template <class Struct>
void require_size(std::size_t size, const char* name) {
  if (size >= kFirstSize<Struct> && size <= kLargestSize) return;
  refuse(std::string(name) + ".struct_size", std::to_string(size),
         "allowed are " + std::to_string(kFirstSize<Struct>) + " to " + std::to_string(kLargestSize) +
             "; set it with the struct's _init function");
}

// The caller's struct_size, read alone: nothing is known of the rest before it has been checked.
template <class Struct>
std::size_t size_of_callers(const Struct* callers, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, struct_size) == 0);
  require_pointer(callers, name);
  std::size_t size = 0;
  std::memcpy(&size, callers, sizeof size);
  require_size<Struct>(size, name);
  return size;
}

// The caller's values on top of the defaults. A larger struct than ours holds fields that we do not know:
// zero means their default, and anything else is refused rather than ignored.
template <class Struct>
Struct read_struct(const Struct* callers, const char* name, Struct defaults) {
  const std::size_t size = size_of_callers(callers, name), ours = std::min(size, sizeof(Struct));
  const auto* bytes = reinterpret_cast<const std::byte*>(callers);
  for (std::size_t i = ours; i < size; ++i)
    if (bytes[i] != std::byte{0})
      throw UsageError(std::string(name) + " sets a field at byte " + std::to_string(i) +
                       ", which this version of ringattn (" + ringattn_version() + ") does not have");
  std::memcpy(&defaults, callers, ours);
  return defaults;
}

// Our values into the caller's struct, whose struct_size stays; what we do not know becomes zero.
template <class Struct>
void write_struct(Struct values, Struct* callers, std::size_t size) {
  values.struct_size = size;
  const std::size_t ours = std::min(size, sizeof(Struct));
  std::memcpy(callers, &values, ours);
  std::memset(reinterpret_cast<std::byte*>(callers) + ours, 0, size - ours);
}

// A ..._init function.
template <class Struct>
ringattn_status initialise(Struct* callers, std::size_t size, const char* name,
                           const Struct& defaults) noexcept {
  return guarded([&] {
    require_pointer(callers, name);
    require_size<Struct>(size, name);
    write_struct(defaults, callers, size);
  });
}

}  // namespace ringattn::c_api
