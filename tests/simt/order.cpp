#include "tests/simt/order.h"

#include <mutex>
#include <string>

namespace simt {
namespace {

std::mutex slots_mutex;
std::array<bool, kMaxStreams> slot_taken{};
std::array<std::uint32_t, kMaxStreams> slot_time{};  // goes on when a slot changes hands

[[noreturn]] void report(const char* what, std::size_t offset, unsigned slot, unsigned line,
                         const Where& where) {
  raise(FaultKind::race,
        std::string(what) + " at global offset " + std::to_string(offset) + " by " +
            (acting ? "stream " + std::to_string(acting->slot) : std::string("the host")) +
            ", not ordered after stream " + std::to_string(slot) + " (line " + std::to_string(line) + ")",
        where);
}

}  // namespace

Actor::Actor() {
  std::lock_guard lock(slots_mutex);
  slot = static_cast<unsigned>(std::find(slot_taken.begin(), slot_taken.end(), false) - slot_taken.begin());
  if (slot == kMaxStreams) throw Fault(FaultKind::usage, "too many streams at one time");
  slot_taken[slot] = true;
  clock[slot] = slot_time[slot];
}

Actor::~Actor() {
  std::lock_guard lock(slots_mutex);
  slot_taken[slot] = false;
  slot_time[slot] = clock[slot] + 1;
}

void GlobalShadow::access(std::size_t offset, std::size_t bytes, Access access, const Where& where) {
  if (bytes == 0) return;
  const StreamClock& known = acting ? acting->clock : host_clock;
  const auto unordered = [&](const Stamp& s) { return s.time > known[s.slot]; };
  const Stamp now = acting ? Stamp{acting->clock[acting->slot], static_cast<std::uint16_t>(acting->slot),
                                   static_cast<std::uint16_t>(where.line())}
                           : Stamp{};
  for (std::size_t c = offset / 16; c <= (offset + bytes - 1) / 16; ++c) {
    Cell& cell = cells_[c];
    if (unordered(cell.write))
      report(access == Access::read ? "read after write" : "write after write", c * 16, cell.write.slot,
             cell.write.line, where);
    if (access == Access::read) {
      if (!acting) continue;
      // Replace a read that this one is ordered after: whoever waits for this waits for that.
      auto place = std::find_if_not(cell.reads.begin(), cell.reads.end(), unordered);
      (place == cell.reads.end() ? cell.reads[now.time % 3] : *place) = now;
    } else {
      for (const Stamp& r : cell.reads)
        if (unordered(r)) report("write after read", c * 16, r.slot, r.line, where);
      if (acting) cell = {now, {}};
    }
  }
}

}  // namespace simt
