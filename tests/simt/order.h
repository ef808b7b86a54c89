// Which work on streams is ordered before which: vector clocks, one entry per stream.
//
// Events, stream synchronisation, and NCCL messages pass clocks on. Each 16 bytes of global
// memory remember who wrote and read them last, so two accesses that no event orders are
// reported in every run, whichever of them happened to come first.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/simt/fault.h"

namespace simt {

inline constexpr unsigned kMaxStreams = 64;  // alive at one time in the process
using StreamClock = std::array<std::uint32_t, kMaxStreams>;

inline void join(StreamClock& into, const StreamClock& from) {
  for (unsigned i = 0; i < kMaxStreams; ++i) into[i] = std::max(into[i], from[i]);
}

enum class Access { read, write, atomic };

class Actor {  // a stream, as the clocks see it
 public:
  Actor();
  ~Actor();
  Actor(const Actor&) = delete;
  void begin_operation() { ++clock[slot]; }
  unsigned slot;
  StreamClock clock{};
};

// On whose behalf this OS thread runs device work; null in host code.
inline thread_local Actor* acting = nullptr;
struct ActingAs {
  Actor* const before = acting;
  explicit ActingAs(Actor* a) { acting = a; }
  ~ActingAs() { acting = before; }
};
// What this host thread knows to be finished. Enqueued work inherits it.
inline thread_local StreamClock host_clock{};

class GlobalShadow {  // of one allocation
 public:
  explicit GlobalShadow(std::size_t bytes) : cells_((bytes + 15) / 16) {}
  void access(std::size_t offset, std::size_t bytes, Access access, const Where& where);

 private:
  struct Stamp {
    std::uint32_t time = 0;
    std::uint16_t slot = 0, line = 0;
  };
  struct Cell {
    Stamp write;
    std::array<Stamp, 3> reads;  // of different streams; a fourth reader displaces one
  };
  std::vector<Cell> cells_;
};

}  // namespace simt
