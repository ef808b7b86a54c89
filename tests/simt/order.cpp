#include "tests/simt/order.h"

#include <atomic>
#include <mutex>
#include <string>

#include "tests/simt/block.h"

namespace simt {
namespace {

std::mutex slots_mutex;
std::array<bool, kMaxStreams> slot_taken{};
std::array<std::uint32_t, kMaxStreams> slot_time{};  // goes on when a slot changes hands
std::atomic<std::uint32_t> operations{0};

constexpr std::uint32_t kManyBlocks = ~0u;

[[noreturn]] void report(const char* what, std::size_t offset, unsigned slot, unsigned line,
                         const Where& where) {
  std::string text = what;
  text.append(" at global offset ").append(std::to_string(offset)).append(" by ");
  text.append(acting ? "stream " + std::to_string(acting->slot) : std::string("the host"));
  text.append(", not ordered after stream ").append(std::to_string(slot));
  raise(FaultKind::race, text + " (line " + std::to_string(line) + ")", where);
}

}  // namespace

Actor::Actor(int device_) : device(device_) {
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

void Actor::begin_operation() {
  ++clock[slot];
  operation = ++operations;
}

void BlockShadow::access(std::size_t allocation_bytes, std::size_t offset, std::size_t bytes, Access access,
                         const BlockView& view, const Where& where) {
  if (cells_.empty()) cells_.resize((allocation_bytes + kCell - 1) / kCell);
  const auto others = [&](const Touch& t) {
    return t.operation == view.operation && !view.after(t.block, t.epoch);
  };
  const auto add = [&](Touch& t) { t = {view.operation, others(t) ? kManyBlocks : view.block, view.epoch}; };
  for (std::size_t c = offset / kCell; c <= (offset + bytes - 1) / kCell; ++c) {
    Cell& cell = cells_[c];
    const bool race = others(cell.write) || (access != Access::read && others(cell.read)) ||
                      (access != Access::atomic && others(cell.atomic));
    if (race) {
      const Touch& t = others(cell.write) ? cell.write : others(cell.atomic) ? cell.atomic : cell.read;
      std::string text = "global offset " + std::to_string(c * kCell);
      text.append(access == Access::read ? " read" : " written").append(" by two blocks of one launch");
      if (t.block != kManyBlocks) text.append(", the other is block ").append(std::to_string(t.block - 1));
      raise(FaultKind::race, text, where);
    }
    add(access == Access::read ? cell.read : access == Access::write ? cell.write : cell.atomic);
  }
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
  if (acting && current_block)
    blocks_.access(bytes_, offset, bytes, access, current_block->view(acting->operation), where);
}

}  // namespace simt
