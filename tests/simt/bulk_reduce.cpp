#include "tests/simt/bulk_reduce.h"

#include <cstring>
#include <string>

#include "tests/simt/memory.h"

namespace simt {

void BulkReduce::issue(Thread& t, float* to, std::uint32_t from, std::uint32_t bytes, const Where& where) {
  if (!registered_) {
    registered_ = true;
    t.block->final_checks.push_back([this] { end(); });
  }
  if (bytes == 0 || bytes % 16 != 0)
    raise(FaultKind::usage,
          "cp.reduce.async.bulk of " + std::to_string(bytes) + " bytes: not a multiple of 16", where);
  const unsigned char* p = t.block->shared.checked(from, bytes, 16, where);
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0)
    raise(FaultKind::misaligned, "cp.reduce.async.bulk: global destination for 16-byte aligned access",
          where);
  if (config().race_check) t.block->race.async_read(t.warp, t.block->shared.offset(from), bytes, where);
  threads_[t.linear].open.push_back({to, from, bytes, {p, p + bytes}, where});
}

void BulkReduce::commit(Thread& t) {
  PerThread& mine = threads_[t.linear];
  mine.groups.push_back(std::move(mine.open));
  mine.open.clear();
}

void BulkReduce::finish_read(Thread& t, Operation& op) {
  if (op.read) return;
  op.read = true;
  const unsigned char* p = t.block->shared.checked(op.from, op.bytes, 16, op.where);
  if (std::memcmp(p, op.data.data(), op.bytes) != 0)
    raise(FaultKind::race, "shared memory was overwritten while a bulk reduction was reading it", op.where);
  if (config().race_check)
    t.block->race.async_read(t.warp, t.block->shared.offset(op.from), op.bytes, op.where);
}

void BulkReduce::land(const Operation& op) {
  // Not as an atomic: the order in which blocks add decides about the last bits of a sum.
  current_block->through_proxy([&] { check_global(op.to, op.bytes, 16, Access::write, op.where); });
  for (std::uint32_t i = 0; i < op.bytes / 4; ++i) {
    float x;
    std::memcpy(&x, &op.data[i * 4], 4);
    op.to[i] += x;
  }
}

void BulkReduce::wait_read(Thread& t, unsigned newest_left) {
  auto& groups = threads_[t.linear].groups;
  for (std::size_t i = 0; i + newest_left < groups.size(); ++i)
    for (Operation& op : groups[i]) finish_read(t, op);
}

void BulkReduce::wait(Thread& t, unsigned newest_left) {
  wait_read(t, newest_left);
  auto& groups = threads_[t.linear].groups;
  while (groups.size() > newest_left) {
    for (const Operation& op : groups.front()) land(op);
    groups.pop_front();
  }
}

void BulkReduce::end() {
  for (auto& [id, thread] : threads_) {
    if (!thread.open.empty())
      raise(FaultKind::race, "the block ended with a bulk reduction that was never committed",
            thread.open[0].where);
    for (const auto& group : thread.groups)
      for (const Operation& op : group) {
        if (!op.read)
          raise(FaultKind::race, "the block ended while a bulk reduction was reading its shared memory",
                op.where);
        land(op);
      }
  }
}

}  // namespace simt
