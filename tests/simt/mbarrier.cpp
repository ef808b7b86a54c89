#include "tests/simt/mbarrier.h"

#include <string>

namespace simt {

void MBarriers::init(Thread& t, std::uint32_t address, unsigned count, const Where& where) {
  t.block->shared.checked(address, 8, 8, where);
  if (config().race_check) t.block->race.write(t.place(), t.block->shared.offset(address), 8, where);
  if (count == 0 || count >= 1u << 20)
    raise(FaultKind::usage, "mbarrier.init with a count of " + std::to_string(count), where);
  MBarrier b;
  b.count = b.pending = count;
  b.owner = t.linear;
  barriers_[address] = b;
}

void MBarriers::init_fence(Thread& t) {
  for (auto& [address, b] : barriers_)
    if (b.owner == t.linear) b.fenced = true;
}

MBarrier& MBarriers::find(Thread& t, std::uint32_t address, const Where& where) {
  const auto it = barriers_.find(address);
  if (it == barriers_.end()) raise(FaultKind::usage, "mbarrier used before its init", where);
  // Its words are only read here: that the init is ordered before is all that can go wrong.
  if (config().race_check) t.block->race.read(t.place(), t.block->shared.offset(address), 8, where);
  return it->second;
}

void MBarriers::advance_if_done(MBarrier& b) {
  if (b.pending != 0 || b.tx != 0) return;
  b.pending = b.count;
  ++b.phase;
  b.done = b.open;
  b.open = Clock{};
}

void MBarriers::arrive(Thread& t, std::uint32_t address, const Where& where) {
  MBarrier& b = find(t, address, where);
  if (b.pending == 0)
    raise(FaultKind::usage,
          "more arrivals in one mbarrier phase than its count of " + std::to_string(b.count), where);
  if (config().race_check) t.block->race.release(t.warp, b.open);
  --b.pending;
  advance_if_done(b);
}

void MBarriers::expect_tx(Thread& t, std::uint32_t address, std::uint32_t bytes, const Where& where) {
  MBarrier& b = find(t, address, where);
  if (b.tx + std::int64_t{bytes} >= 1 << 20)
    raise(FaultKind::usage, "mbarrier tx-count of " + std::to_string(b.tx + bytes) + ", over 2^20 - 1",
          where);
  b.tx += bytes;
}

void MBarriers::wait(Thread& t, std::uint32_t address, unsigned parity, const Where& where) {
  if (parity > 1) raise(FaultKind::usage, "mbarrier parity is " + std::to_string(parity), where);
  MBarrier& b = find(t, address, where);
  t.block->wait_until(
      t, parity ? "mbarrier parity 1" : "mbarrier parity 0", [&] { return b.phase % 2 != parity; }, where);
  if (config().race_check) t.block->race.acquire(t.warp, b.done);
}

void MBarriers::check_for_tma(Thread& t, std::uint32_t address, const Where& where) {
  if (!find(t, address, where).fenced)
    raise(FaultKind::usage, "TMA on an mbarrier whose init was not followed by fence.mbarrier_init", where);
}

void MBarriers::complete_tx(std::uint32_t address, std::uint32_t bytes, const Clock& published) {
  MBarrier& b = barriers_.at(address);
  b.tx -= bytes;
  join(b.open, published);
  advance_if_done(b);
}

}  // namespace simt
