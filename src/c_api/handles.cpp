#include "src/c_api/handles.h"

#include <array>
#include <mutex>
#include <string>
#include <unordered_map>

#include "src/error.h"

namespace ringattn::c_api::table {
namespace {

struct Entry {
  HandleKind kind;
  std::shared_ptr<void> object;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<std::uintptr_t, Entry> entries;
  std::uintptr_t next = 1;  // odd numbers: no pointer that malloc returned is one of them
};

// Never destroyed, so that handles can still be used and destroyed while the process ends.
Table& table() {
  static Table& table = *new Table;
  return table;
}

const char* text_of(HandleKind kind) {
  constexpr std::array<const char*, 5> names{"a comm", "a mask", "a layout", "a plan", "an attention"};
  return names[static_cast<std::size_t>(kind)];
}

// The entry of a live handle of that kind; the table is locked.
auto entry_of(Table& t, HandleKind kind, std::uintptr_t handle, const char* name) {
  if (handle == 0) throw UsageError(std::string(name) + " is a null handle");
  const auto entry = t.entries.find(handle);
  if (entry == t.entries.end()) {
    const bool was_one = handle % 2 == 1 && handle < t.next;
    throw UsageError(std::string(name) +
                     (was_one ? " is a handle that was destroyed" : " is not a handle of this library"));
  }
  if (entry->second.kind != kind)
    throw UsageError(std::string(name) + " is the handle of " + text_of(entry->second.kind) + ", expected " +
                     text_of(kind));
  return entry;
}

}  // namespace

std::uintptr_t add(HandleKind kind, std::shared_ptr<void> object) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const std::uintptr_t handle = t.next;
  t.entries.emplace(handle, Entry{kind, std::move(object)});
  t.next += 2;
  return handle;
}

std::shared_ptr<void> find(HandleKind kind, std::uintptr_t handle, const char* name) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  return entry_of(t, kind, handle, name)->second.object;
}

std::shared_ptr<void> remove(HandleKind kind, std::uintptr_t handle, const char* name) {
  Table& t = table();
  const std::lock_guard lock(t.mutex);
  const auto entry = entry_of(t, kind, handle, name);
  std::shared_ptr<void> object = std::move(entry->second.object);
  t.entries.erase(entry);
  return object;
}

}  // namespace ringattn::c_api::table
