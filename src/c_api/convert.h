// Between the C structs and the types of the library. Everything that arrives is checked here or by the
// object that gets it; errors name the field as the C caller knows it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "src/attention.h"
#include "src/c_api/status.h"
#include "src/refuse.h"

namespace ringattn::c_api {

ringattn_problem default_problem();
ringattn_options default_options();

DType dtype_of(ringattn_dtype dtype, const char* name);
LayoutKind layout_kind_of(ringattn_layout_kind kind);
Pass pass_of(ringattn_pass pass);
Backend backend_of(ringattn_backend backend, const char* name);
MemorySpace space_of(ringattn_space space);

Problem problem_of(const ringattn_problem* problem, const Mask& mask);
// Throws UsageError unless it is 1 to 10^12.
std::chrono::milliseconds milliseconds_of(const char* name, int64_t milliseconds);

// Null stands for the defaults.
RingOptions options_of(const ringattn_options* options);

TensorView view_of(const ringattn_tensor& tensor, const char* name, MemorySpace space);
inline LseView view_of(const ringattn_lse& lse, MemorySpace space) {
  return {.data = lse.data,
          .shape = {lse.shape[0], lse.shape[1], lse.shape[2]},
          .stride = {lse.stride[0], lse.stride[1], lse.stride[2]},
          .space = space};
}

ringattn_workspace c_workspace(const Workspace& workspace);

Tile tile_of(const ringattn_tile& tile);
ringattn_tile c_tile(const Tile& tile);

const Layout& side_of(const Sharding& sharding, ringattn_side side);

// An array of the caller, which may be null where it is empty.
template <class T>
std::span<const T> array_of(const T* data, std::size_t count, const char* name) {
  if (count > 0) require_pointer(data, name);
  return {data, count};
}

// Writes a list of `size` entries as ringattn.h says: whole, or nothing but its length, for which it is not
// made.
template <class T, class Make>
void give_list(std::size_t size, T* out, const char* name, std::size_t capacity, std::size_t* count,
               Make&& make) {
  require_pointer(count, "count");
  *count = size;
  if (out == nullptr && capacity == 0) return;
  require_pointer(out, name);
  if (capacity < size)
    refuse("capacity", std::to_string(capacity),
           std::string(name) + " has " + std::to_string(size) + " entries");
  std::ranges::copy(make(), out);
}

}  // namespace ringattn::c_api
