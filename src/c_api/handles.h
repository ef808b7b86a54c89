// Handles of the C interface: numbers in the shape of pointers, looked up at every call.
//
// A pointer to the object itself, with a magic word inside, could not tell a destroyed handle from a live one
// without reading freed memory, nor from a new object at the same address. Numbers that are never used twice
// can, so the objects sit in a table. The table is the one thing here that all threads of the process share;
// it is behind a mutex and holds no setting: no result depends on it.
#pragma once
#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "src/attention.h"
#include "src/c_api/ringattn.h"
#include "src/c_api/status.h"

namespace ringattn::c_api {

// What the handles stand for. All but the communicators and the ring are never changed once made.
struct PlanObject {
  Problem problem;
  Sharding sharding;
  Plan plan;
  Backend backend;
};
struct AttentionObject {
  std::shared_ptr<Communicator> comm;
  RingAttention ring;
  Sharding sharding;
  std::chrono::milliseconds deadline;
  Backend backend;
};

enum class HandleKind : std::uint8_t { comm, mask, layout, plan, attention };

template <class Handle>
struct HandleTraits;
template <>
struct HandleTraits<ringattn_comm> {
  using Object = Communicator;
  static constexpr HandleKind kind = HandleKind::comm;
};
template <>
struct HandleTraits<ringattn_mask> {
  using Object = const Mask;
  static constexpr HandleKind kind = HandleKind::mask;
};
template <>
struct HandleTraits<ringattn_layout> {
  using Object = const Sharding;
  static constexpr HandleKind kind = HandleKind::layout;
};
template <>
struct HandleTraits<ringattn_plan> {
  using Object = const PlanObject;
  static constexpr HandleKind kind = HandleKind::plan;
};
template <>
struct HandleTraits<ringattn_attention> {
  using Object = AttentionObject;
  static constexpr HandleKind kind = HandleKind::attention;
};

namespace table {
std::uintptr_t add(HandleKind kind, std::shared_ptr<void> object);
// Both throw UsageError, "mask is a handle that was destroyed". What find() gave lives on while a call uses
// it, even if another thread destroys the handle meanwhile.
std::shared_ptr<void> find(HandleKind kind, std::uintptr_t handle, const char* name);
std::shared_ptr<void> remove(HandleKind kind, std::uintptr_t handle, const char* name);
}  // namespace table

template <class Handle>
using Object = typename HandleTraits<Handle>::Object;

template <class Handle>
std::shared_ptr<Object<Handle>> object_of(const Handle* handle, const char* name) {
  return std::static_pointer_cast<Object<Handle>>(
      table::find(HandleTraits<Handle>::kind, reinterpret_cast<std::uintptr_t>(handle), name));
}

template <class Handle>
Handle* handle_of(std::shared_ptr<Object<Handle>> object) {
  using Mutable = std::remove_const_t<Object<Handle>>;
  const std::uintptr_t number =
      table::add(HandleTraits<Handle>::kind, std::const_pointer_cast<Mutable>(std::move(object)));
  return reinterpret_cast<Handle*>(number);  // NOLINT(performance-no-int-to-ptr): never read through
}

// A ..._create function: *handle is null unless `make`, which returns the object, has returned.
template <class Handle, class Make>
ringattn_status create(Handle** handle, const char* name, Make&& make) noexcept {
  return guarded([&] {
    require_pointer(handle, name);
    *handle = nullptr;
    *handle = handle_of<Handle>(std::make_shared<Object<Handle>>(make()));
  });
}

template <class Handle>
ringattn_status destroy(Handle* handle, const char* name) noexcept {
  return guarded([&] {
    // The object dies here, outside the table's lock: it may take a while, or end an MPI communicator.
    const auto object =
        table::remove(HandleTraits<Handle>::kind, reinterpret_cast<std::uintptr_t>(handle), name);
  });
}

}  // namespace ringattn::c_api
