// Which work on streams is ordered before which: vector clocks, one entry per stream.
//
// Events, stream synchronisation and messages between ranks pass clocks on. Each 16 bytes of global memory
// remember who wrote and read them last, so two accesses that no event orders are reported in every run,
// whichever came first. Blocks of one launch are ordered by what one adds to a counter behind a fence and
// another waits for, and by nothing else: what one writes, no other may touch before that, except both by
// atomics.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
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
  explicit Actor(int device);
  ~Actor();
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;
  void begin_operation();

  int device;
  unsigned slot;
  std::uint32_t operation = 0;  // a number of its own for every operation of the process
  StreamClock clock{};
};

// On whose behalf this OS thread runs device work; null in host code.
inline thread_local Actor* acting = nullptr;
class ActingAs {
 public:
  explicit ActingAs(Actor* a) : before_(acting) { acting = a; }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  ~ActingAs() { acting = before_; }

 private:
  Actor* const before_;
};
// What this host thread knows to be finished. Enqueued work inherits it.
inline thread_local StreamClock host_clock{};

// By number of a block: how many of its epochs have ended for whoever holds this. A fence ends an epoch.
using BlockEpochs = std::vector<std::uint32_t>;
inline void join(BlockEpochs& into, const BlockEpochs& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// What the blocks of one launch have published, by the counter's address.
class LaunchOrder {
 public:
  void release(const void* p, const BlockEpochs& what) {
    std::lock_guard lock(mutex_);
    join(published_[p], what);
  }
  void acquire(const void* p, BlockEpochs& into) {
    std::lock_guard lock(mutex_);
    join(into, published_[p]);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, BlockEpochs> published_;
};

// Who touches memory: a block, in its present epoch, with what it knows of the others.
struct BlockView {
  std::uint32_t operation, block, epoch;  // blocks count from 1 within their launch
  const BlockEpochs& known;

  bool after(std::uint32_t other, std::uint32_t its_epoch) const {
    return other == block || (other < known.size() && known[other] >= its_epoch);
  }
};

// Of one allocation, between the blocks of a launch. Cells are 2 bytes: blocks do store neighbouring halves.
class BlockShadow {
 public:
  void access(std::size_t allocation_bytes, std::size_t offset, std::size_t bytes, Access access,
              const BlockView& view, const Where& where);

 private:
  static constexpr std::size_t kCell = 2;
  struct Touch {
    std::uint32_t operation = 0, block = 0, epoch = 0;
  };
  struct Cell {
    Touch write, read, atomic;
  };
  std::vector<Cell> cells_;  // made at the first access by a kernel
};

class GlobalShadow {  // of one allocation
 public:
  explicit GlobalShadow(std::size_t bytes) : bytes_(bytes), cells_((bytes + 15) / 16) {}
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
  std::size_t bytes_;
  std::vector<Cell> cells_;
  BlockShadow blocks_;
};

}  // namespace simt
