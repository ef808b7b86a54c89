#include "tests/simt/race.h"

#include <bit>
#include <string>

namespace simt {

// Times go on from block to block: what an earlier block left in the cells is then ordered before everything,
// and nothing has to be cleared.
void RaceCheck::reset(std::size_t shared_bytes, unsigned warps) {
  for (const Clock& c : clock_)
    for (const std::uint32_t t : c.known) latest_ = std::max(latest_, t);
  const std::size_t cells = (shared_bytes + 1) / 2;
  if (warps != warps_ || cells > cells_.size()) {
    warps_ = warps;
    cells_.assign(cells, Cell{});
    reads_.assign(cells * warps, Access{});
  }
  copies_ = 0;
  Clock start;
  start.known.fill(latest_);
  start.proxy.fill(latest_);
  clock_.assign(kAgents, start);
  for (unsigned a = 0; a < kAgents; ++a) ++clock_[a].known[a];
}

void RaceCheck::release(unsigned warp, Clock& object) {
  join(object, clock_[warp]);
  ++clock_[warp].known[warp];
}

bool RaceCheck::unordered(const Access& earlier, Lane who, bool through_proxy) const {
  const Clock& mine = clock_[who.warp];
  if (through_proxy && earlier.agent < kMaxWarps && earlier.time > mine.proxy[earlier.agent]) return true;
  if (earlier.agent != who.warp) return earlier.time > mine.known[earlier.agent];
  // The same warp: another lane, and no step of the warp's time in between.
  return earlier.time == mine.known[who.warp] && earlier.lane != who.lane;
}

void RaceCheck::report(const char* what, std::size_t cell, const Access& earlier, Lane who,
                       const Where& where) const {
  std::string text = std::string(what) + " shared offset " + std::to_string(cell * 2);
  if (earlier.agent >= kMaxWarps) {
    text += ", not ordered after an asynchronous copy";
  } else if (!unordered(earlier, who, false)) {
    text += " through the async proxy, stored to without a fence.proxy.async since";
  } else if (earlier.agent == who.warp) {
    text += ", no __syncwarp orders it after lane " + std::to_string(earlier.lane);
  } else {
    text += ", no barrier orders it after warp " + std::to_string(earlier.agent);
  }
  if (earlier.line) text += " (line " + std::to_string(earlier.line) + ")";
  raise(FaultKind::race, text, where);
}

void RaceCheck::note_read(std::size_t cell, Lane who, const Where& where) {
  Access& mine = reads_[cell * warps_ + who.warp];
  const std::uint32_t now = clock_[who.warp].known[who.warp];
  const bool several = cells_[cell].readers >> who.warp & 1 && mine.time == now && mine.lane != who.lane;
  mine = {now, static_cast<std::uint8_t>(who.warp),
          static_cast<std::uint8_t>(several ? Lane::kAll : who.lane),
          static_cast<std::uint16_t>(where.line())};
  cells_[cell].readers |= 1u << who.warp;
}

// The most frequent question of all. What was written together is asked for together, so a cell whose last
// write is that of the cell before needs no second look at the clocks.
void RaceCheck::read(Lane who, std::uint32_t offset, std::size_t bytes, const Where& where) {
  const std::size_t first = offset / 2, last = (offset + bytes - 1) / 2;
  Access ordered = cells_[first].write;
  if (unordered(ordered, who, false)) report("read of", first, ordered, who, where);
  note_read(first, who, where);
  for (std::size_t c = first + 1; c <= last; ++c) {
    const Access& write = cells_[c].write;
    if (write.time != ordered.time || write.agent != ordered.agent || write.lane != ordered.lane) {
      if (unordered(write, who, false)) report("read of", c, write, who, where);
      ordered = write;
    }
    note_read(c, who, where);
  }
}

void RaceCheck::async_read(unsigned warp, std::uint32_t offset, std::size_t bytes, const Where& where) {
  const Lane who{warp, Lane::kAll};
  for (std::size_t c = offset / 2; c <= (offset + bytes - 1) / 2; ++c) {
    if (unordered(cells_[c].write, who, true)) report("read of", c, cells_[c].write, who, where);
    note_read(c, who, where);
  }
}

void RaceCheck::check_write(const Cell& cell, std::size_t index, Lane who, bool through_proxy,
                            const Where& where) const {
  if (unordered(cell.write, who, through_proxy))
    report("write after write to", index, cell.write, who, where);
  for (std::uint32_t left = cell.readers; left; left &= left - 1) {
    const Access& r = reads_[index * warps_ + static_cast<unsigned>(std::countr_zero(left))];
    if (unordered(r, who, false)) report("write after read of", index, r, who, where);
  }
}

void RaceCheck::write(Lane who, std::uint32_t offset, std::size_t bytes, const Where& where) {
  const Access now{clock_[who.warp].known[who.warp], static_cast<std::uint8_t>(who.warp),
                   static_cast<std::uint8_t>(who.lane), static_cast<std::uint16_t>(where.line())};
  for (std::size_t c = offset / 2; c <= (offset + bytes - 1) / 2; ++c) {
    check_write(cells_[c], c, who, false, where);
    cells_[c] = {now, 0};
  }
}

void RaceCheck::async_write(unsigned issuer, std::uint32_t offset, std::size_t bytes, Clock& published,
                            const Where& where) {
  const unsigned agent = kMaxWarps + copies_++ % (kAgents - kMaxWarps);
  const std::uint32_t now = clock_[agent].known[agent];
  clock_[agent] = clock_[issuer];
  clock_[agent].known[agent] = now;
  const Lane who{agent, Lane::kAll};
  const Access write{now, static_cast<std::uint8_t>(agent), static_cast<std::uint8_t>(Lane::kAll),
                     static_cast<std::uint16_t>(where.line())};
  for (std::size_t c = offset / 2; c <= (offset + bytes - 1) / 2; ++c) {
    check_write(cells_[c], c, who, true, where);
    cells_[c] = {write, 0};
  }
  release(agent, published);
}

}  // namespace simt
