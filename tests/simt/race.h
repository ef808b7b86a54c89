// Who is ordered before whom in shared memory: vector clocks, one entry per warp.
//
// Shuffled schedules show a missing barrier only when the dice fall badly; this shows it in every run. It
// sees what goes through the wrappers of ptx.h, one more reason for kernels to use nothing else.
//
// Inside a warp, the time of its own entry tells whether a __syncwarp or a barrier lies between the accesses
// of two lanes. Asynchronous copies (TMA) take turns on a few more entries behind those of the warps.
//
// TMA and wgmma use the async proxy, which need not see ordinary stores until fence.proxy.async. So a Clock
// has two halves: what is ordered before me, and what of it the async proxy sees. The fence copies the first
// to the second, and both travel with every synchronisation, so it does not matter whether the writer or the
// reader executed the fence.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "tests/simt/fault.h"

namespace simt {

inline constexpr unsigned kMaxWarps = 32;
inline constexpr unsigned kAgents = kMaxWarps + 16;

struct Clock {
  std::array<std::uint32_t, kAgents> known{}, proxy{};
};
inline void join(Clock& into, const Clock& from) {
  for (unsigned i = 0; i < kAgents; ++i) {
    into.known[i] = std::max(into.known[i], from.known[i]);
    into.proxy[i] = std::max(into.proxy[i], from.proxy[i]);
  }
}

// One thread's place, as the clocks see it. A warp-wide instruction reads and writes as all lanes.
struct Lane {
  static constexpr unsigned kAll = 32;
  unsigned warp, lane;
};

class RaceCheck {
 public:
  void reset(std::size_t shared_bytes, unsigned warps);

  // A synchronisation object owns a Clock. Arriving publishes what the warp did so far, leaving takes over
  // what the others published.
  void release(unsigned warp, Clock& object);
  void acquire(unsigned warp, const Clock& object) { join(clock_[warp], object); }
  void sync_warp(unsigned warp) { ++clock_[warp].known[warp]; }
  void fence_proxy(unsigned warp) { clock_[warp].proxy = clock_[warp].known; }

  void read(Lane who, std::uint32_t offset, std::size_t bytes, const Where& where);
  void write(Lane who, std::uint32_t offset, std::size_t bytes, const Where& where);
  // A read through the async proxy by all of a warp.
  void async_read(unsigned warp, std::uint32_t offset, std::size_t bytes, const Where& where);
  // A write by a copy unit on behalf of a warp: it comes after what the warp did before, but nobody, that
  // warp included, comes after it without acquiring what it leaves in `published`.
  void async_write(unsigned issuer, std::uint32_t offset, std::size_t bytes, Clock& published,
                   const Where& where);

 private:
  // Two bytes are the smallest element, so that two lanes that store neighbours do not meet in a cell.
  struct Access {
    std::uint32_t time = 0;
    std::uint8_t agent = 0, lane = 0;
    std::uint16_t line = 0;
  };
  struct Cell {
    Access write;
    std::uint32_t readers = 0;  // warps that have read since the write
  };
  bool unordered(const Access& earlier, Lane who, bool through_proxy) const;
  void note_read(std::size_t cell, Lane who, const Where& where);
  void check_write(const Cell& cell, std::size_t index, Lane who, bool through_proxy,
                   const Where& where) const;
  [[noreturn]] void report(const char* what, std::size_t cell, const Access& earlier, Lane who,
                           const Where& where) const;

  unsigned warps_ = 0, copies_ = 0;
  std::uint32_t latest_ = 0;  // no time handed out so far is later
  std::vector<Clock> clock_;
  std::vector<Cell> cells_;
  std::vector<Access> reads_;  // [cell][warp]
};

}  // namespace simt
