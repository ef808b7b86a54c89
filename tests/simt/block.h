// One thread block: its threads (fibers), warps, barriers, shared memory, and the scheduler.
//
// A block runs on one OS thread. A CUDA thread runs until it reaches a collective or a
// barrier; then the scheduler picks the next one, at random from the seed.
#pragma once
#include <vector_types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <typeindex>
#include <vector>

#include "tests/simt/async_copy.h"
#include "tests/simt/config.h"
#include "tests/simt/fault.h"
#include "tests/simt/fiber.h"
#include "tests/simt/order.h"
#include "tests/simt/race.h"
#include "tests/simt/shared_arena.h"

namespace simt {

struct Thread {
  Block* block = nullptr;
  BlockEpochs fenced;  // what its last fence published, of the block and of what that knew
  uint3 index{};
  unsigned linear = 0, warp = 0, lane = 0;
  Fiber* fiber = nullptr;
  CopyQueue copies;
  // Why it does not run (for the deadlock report), and for wait_until: when it may go on.
  const char* waiting_for = nullptr;
  Where where;
  const std::function<bool()>* ready = nullptr;
  bool exited = false;

  Lane place() const { return {warp, lane}; }
};

// Lanes of `mask` meeting at one warp-collective operation. Each lane leaves a pointer to its
// operands and to its result, both on its own stack; the last to arrive computes for all.
struct Rendezvous {
  const char* op = nullptr;
  unsigned line = 0;
  std::uint32_t mask = 0, arrived = 0;
  std::array<const void*, 32> in;
  std::array<void*, 32> out;
};

struct Warp {
  std::uint32_t present = 0;  // lanes that exist
  std::uint32_t runnable = 0;
  std::array<Rendezvous, 4> meetings;  // a diverged warp can hold several masks at once
};

struct Barrier {
  unsigned expected = 0, arrived = 0;
  std::vector<Thread*> waiting;
  Clock clock{};
};

struct Block {
  dim3 grid, dim;
  uint3 index{};
  SharedArena shared;
  RaceCheck race;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::array<Barrier, 16> barriers;
  Random random{1};

  // Counts from 1 within its launch.
  std::uint32_t number() const { return 1 + index.x + grid.x * (index.y + grid.y * index.z); }

  // Runs `kernel`, borrowed, once per thread, a part at a time: blocks that are at work at once take turns on
  // one OS thread. `launch_order`: what they share.
  void begin(const std::function<void()>& kernel, std::size_t shared_bytes, std::uint64_t seed,
             LaunchOrder* launch_order);
  // A number of steps. `stuck`: none was possible. Throws Fault if a thread, or the block, misbehaves; it is
  // then at its end, as it is when done.
  enum class Progress : std::uint8_t { some, stuck, done };
  Progress go_on(unsigned steps);
  void give_up();  // for a block that has begun: unwinds its threads
  std::string deadlock_report() const;

  // ---- order between blocks ----
  BlockView view(std::uint32_t operation) const { return {operation, number(), epoch_, *seen_by_access_}; }
  void fence(Thread& t);
  void release(const Thread& t, const void* counter);
  void acquire(const void* counter);
  void fence_proxy() { known_to_proxy_ = known_; }
  // Accesses made by `f` are those of the copy unit.
  template <class F>
  void through_proxy(F f) {
    seen_by_access_ = &known_to_proxy_;
    f();
    seen_by_access_ = &known_;
  }

  // ---- for operations, called from inside a fiber ----
  void suspend(Thread& t, const char* op, const Where& where);  // until wake()
  void wake(Thread& t);
  // Blocks the thread until ready() holds. This is how mbarrier waits are to be built.
  void wait_until(Thread& t, const char* op, const std::function<bool()>& ready, const Where& w);
  void barrier(Thread& t, unsigned id, unsigned expected, bool wait, const Where& where);

  // ---- for engines that act on their own (TMA) ----
  // Called when no thread can go on, and now and then before that. Returns whether it changed
  // anything; if no engine does and no thread can run, the block is deadlocked.
  std::vector<std::function<bool()>> engines;
  // Called when all threads have returned: engines throw here if they were left with work.
  std::vector<std::function<void()>> final_checks;
  // State that an extension keeps per block, made on first use and dropped after the block.
  template <class T>
  T& extension() {
    auto& p = extensions_[typeid(T)];
    if (!p) p = std::make_shared<T>();
    return *static_cast<T*>(p.get());
  }

 private:
  void reset(std::size_t shared_bytes, std::uint64_t seed);
  void start(Thread& t, unsigned linear, const std::function<void()>* job);
  Thread* pick();
  bool wake_ready();
  bool step_engines();
  void enter(Thread& t, const std::function<void()>& kernel);
  void cancel_all();
  void check_end() const;

  std::map<std::type_index, std::shared_ptr<void>> extensions_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<std::function<void()>> jobs_;
  LaunchOrder* launch_order_ = nullptr;
  std::uint32_t epoch_ = 1;
  BlockEpochs known_, known_to_proxy_;
  const BlockEpochs* seen_by_access_ = &known_;
  std::optional<Fault> fault_;
  unsigned live_ = 0, current_warp_ = 0, polling_ = 0;
  std::uint32_t stickiness_ = 0;  // of 16: how often to stay with the same warp
  bool cancelled_ = false;
};

// The CUDA thread that is running on this OS thread; null in host code.
inline thread_local Thread* current_thread = nullptr;
// The block that is running on this OS thread, also while an engine or a final check of it acts.
inline thread_local Block* current_block = nullptr;
Thread& self();
// State of the running thread's block.
template <class T>
T& extension() {
  return self().block->extension<T>();
}

}  // namespace simt
