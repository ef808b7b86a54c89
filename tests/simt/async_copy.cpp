#include "tests/simt/async_copy.h"

#include <cstring>

#include "tests/simt/block.h"
#include "tests/simt/memory.h"

namespace simt {
namespace {

unsigned char* destination(Thread& t, const PendingCopy& c) {
  unsigned char* p = t.block->shared.checked(c.destination, c.bytes, c.bytes, c.where);
  if (config().race_check)
    t.block->race.write(t.place(), t.block->shared.offset(c.destination), c.bytes, c.where);
  return p;
}

void land(Thread& t, const PendingCopy& c) {
  unsigned char* p = destination(t, c);
  if (c.source_bytes) check_global(c.source, c.source_bytes, 1, Access::read, c.where);
  std::memcpy(p, c.source, c.source_bytes);
  std::memset(p + c.source_bytes, 0, c.bytes - c.source_bytes);
}

}  // namespace

void CopyQueue::issue(Thread& t, const PendingCopy& c) {
  if (c.source_bytes > c.bytes) raise(FaultKind::usage, "cp.async source size too large", c.where);
  // The hardware wants an aligned source even when it reads nothing from it.
  if (c.source_bytes) check_global(c.source, c.source_bytes, c.bytes, Access::read, c.where);
  if (reinterpret_cast<std::uintptr_t>(c.source) % c.bytes)
    raise(FaultKind::misaligned, "cp.async source", c.where);
  std::memset(destination(t, c), kPoison, c.bytes);
  open_.push_back(c);
}

void CopyQueue::wait_group(Thread& t, unsigned newest_left_in_flight) {
  while (groups_.size() > newest_left_in_flight) {
    for (const PendingCopy& c : groups_.front()) land(t, c);
    groups_.pop_front();
  }
}

}  // namespace simt
