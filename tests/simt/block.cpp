#include "tests/simt/block.h"

#include <bit>
#include <string>

namespace simt {

Thread& self() {
  if (!current_thread) throw Fault(FaultKind::usage, "device code called outside a launch");
  return *current_thread;
}

void raise(FaultKind kind, const std::string& text, const Where& where) {
  std::string place;
  if (const Thread* t = current_thread) {
    const uint3 b = t->block->index;
    place = "block " + std::to_string(b.x) + "," + std::to_string(b.y) + "," + std::to_string(b.z) +
            " thread " + std::to_string(t->linear) + " (warp " + std::to_string(t->warp) + " lane " +
            std::to_string(t->lane) + "), ";
  }
  throw Fault(kind, text + " [" + place + at(where) + "]");
}

void Block::begin(const std::function<void()>& kernel, std::size_t shared_bytes, std::uint64_t seed,
                  LaunchOrder* launch_order) {
  reset(shared_bytes, seed);
  launch_order_ = launch_order;
  epoch_ = 1;
  known_.clear();
  known_to_proxy_.clear();
  seen_by_access_ = &known_;  // a fault may have left it at the other one
  const auto n = static_cast<unsigned>(threads.size());
  jobs_.resize(n);
  for (unsigned i = 0; i < n; ++i) {
    jobs_[i] = [this, i, &kernel] { enter(threads[i], kernel); };
    start(threads[i], i, &jobs_[i]);
  }
}

Block::Progress Block::go_on(unsigned steps) {
  current_block = this;
  bool any = false;
  try {
    for (; steps > 0 && live_ > 0 && !fault_; --steps) {
      if (random.below(16) == 0) wake_ready(), step_engines();
      if (Thread* t = pick()) {
        current_thread = t;
        t->fiber->resume();
        current_thread = nullptr;
      } else if (!wake_ready() && !step_engines()) {
        break;
      }
      any = true;
    }
    if (live_ > 0 && !fault_) {
      current_block = nullptr;
      return any ? Progress::some : Progress::stuck;
    }
    if (!fault_) check_end();
  } catch (const Fault& f) {  // of an engine or at the end
    fault_ = f;
  }
  if (fault_) cancel_all();
  extensions_.clear();
  current_block = nullptr;
  if (fault_) throw *fault_;
  return Progress::done;
}

void Block::give_up() {
  current_block = this;
  cancel_all();
  extensions_.clear();
  current_block = nullptr;
}

void Block::fence(Thread& t) {
  if (known_.size() <= number()) known_.resize(number() + 1);
  known_[number()] = epoch_++;
  t.fenced = known_;
}

void Block::release(const Thread& t, const void* counter) {
  if (!t.fenced.empty()) launch_order_->release(counter, t.fenced);
}

void Block::acquire(const void* counter) { launch_order_->acquire(counter, known_); }

void Block::reset(std::size_t shared_bytes, std::uint64_t seed) {
  const unsigned n = dim.x * dim.y * dim.z, warp_count = (n + 31) / 32;
  random = Random(seed);
  // From "one warp runs as far as it can" to "a new warp at every step": a missing barrier shows best under
  // skew, a missing warp-level step under fine interleaving.
  stickiness_ = std::array<std::uint32_t, 4>{16, 15, 8, 0}[random.below(4)];
  shared.reset(shared_bytes, random.below(64) * 16);
  race.reset(config().race_check ? shared_bytes : 0, warp_count);
  barriers = {};
  engines.clear();
  final_checks.clear();
  extensions_.clear();
  fault_.reset();
  cancelled_ = false;
  live_ = n;
  polling_ = 0;
  threads.resize(n);
  warps.assign(warp_count, Warp{});
  current_warp_ = random.below(warp_count);
  while (fibers_.size() < n) fibers_.push_back(std::make_unique<Fiber>());
}

void Block::start(Thread& t, unsigned linear, const std::function<void()>* job) {
  t.block = this;
  t.index = {linear % dim.x, linear / dim.x % dim.y, linear / (dim.x * dim.y)};
  t.linear = linear, t.warp = linear / 32, t.lane = linear % 32;
  t.copies.clear();
  t.fenced.clear();
  t.waiting_for = nullptr, t.ready = nullptr, t.exited = false;
  t.fiber = fibers_[linear].get();
  t.fiber->assign(job);
  warps[t.warp].present |= 1u << t.lane;
  wake(t);
}

void Block::check_end() const {
  shared.check_guards();
  for (std::size_t id = 0; id < barriers.size(); ++id)
    if (barriers[id].arrived)
      throw Fault(FaultKind::divergence,
                  "the block ended with arrivals that nobody waited for at barrier " + std::to_string(id));
  for (const auto& check : final_checks) check();
}

// Top of every fiber: the one place where a kernel's exceptions end.
void Block::enter(Thread& t, const std::function<void()>& kernel) {
  try {
    if (!cancelled_) kernel();  // the first turn may come when the block has already failed
  } catch (const Cancelled&) {
  } catch (const Fault& f) {
    if (!fault_) fault_ = f;
  } catch (const std::exception& e) {
    if (!fault_) fault_ = Fault(FaultKind::usage, e.what());
  }
  t.exited = true;
  warps[t.warp].runnable &= ~(1u << t.lane);
  --live_;
}

void Block::cancel_all() {
  cancelled_ = true;
  for (Thread& t : threads)
    if (!t.exited) {
      current_thread = &t;
      t.fiber->resume();
    }
  current_thread = nullptr;
}

Thread* Block::pick() {
  const auto n = static_cast<unsigned>(warps.size());
  if (random.below(16) >= stickiness_ || !warps[current_warp_].runnable) {
    const unsigned first = random.below(n);
    unsigned w = first;
    while (!warps[w].runnable)
      if ((w = (w + 1) % n) == first) return nullptr;
    current_warp_ = w;
  }
  const std::uint32_t runnable = warps[current_warp_].runnable;
  const unsigned turn = random.below(32);
  const auto steps = static_cast<unsigned>(std::countr_zero(std::rotr(runnable, static_cast<int>(turn))));
  const unsigned lane = (steps + turn) % 32;
  return &threads[current_warp_ * 32 + lane];
}

void Block::suspend(Thread& t, const char* op, const Where& where) {
  if (cancelled_) throw Cancelled{};  // not even once more: nobody would resume this fiber
  t.waiting_for = op;
  t.where = where;
  warps[t.warp].runnable &= ~(1u << t.lane);
  t.fiber->suspend();
  if (cancelled_) throw Cancelled{};
  t.waiting_for = nullptr;
}

void Block::wake(Thread& t) { warps[t.warp].runnable |= 1u << t.lane; }

void Block::wait_until(Thread& t, const char* op, const std::function<bool()>& ready, const Where& where) {
  if (ready()) return;
  t.ready = &ready;
  ++polling_;
  suspend(t, op, where);
}

bool Block::wake_ready() {
  if (polling_ == 0) return false;
  bool any = false;
  for (Thread& t : threads)
    if (t.ready && !t.exited && (*t.ready)()) {
      t.ready = nullptr;
      --polling_;
      wake(t);
      any = true;
    }
  return any;
}

bool Block::step_engines() {
  bool any = false;
  for (std::size_t i = 0; i < engines.size(); ++i) any = engines[i]() || any;
  return any;
}

void Block::barrier(Thread& t, unsigned id, unsigned expected, bool wait, const Where& where) {
  Barrier& b = barriers.at(id);
  if (expected % 32 != 0 && expected != threads.size())
    raise(FaultKind::usage, "barrier thread count is not a multiple of 32", where);
  if (b.arrived && b.expected != expected)
    raise(FaultKind::divergence,
          "barrier " + std::to_string(id) + " used with counts " + std::to_string(b.expected) + " and " +
              std::to_string(expected),
          where);
  b.expected = expected;
  if (config().race_check) race.release(t.warp, b.clock);
  if (++b.arrived < expected) {
    if (!wait) return;
    b.waiting.push_back(&t);
    static constexpr const char* kNames[16] = {"barrier 0",  "barrier 1",  "barrier 2",  "barrier 3",
                                               "barrier 4",  "barrier 5",  "barrier 6",  "barrier 7",
                                               "barrier 8",  "barrier 9",  "barrier 10", "barrier 11",
                                               "barrier 12", "barrier 13", "barrier 14", "barrier 15"};
    suspend(t, kNames[id], where);
    return;  // the last to arrive has acquired for this warp
  }
  if (config().race_check) {
    for (const Thread* other : b.waiting) race.acquire(other->warp, b.clock);
    if (wait) race.acquire(t.warp, b.clock);
  }
  for (Thread* other : b.waiting) wake(*other);
  b = Barrier{};
}

}  // namespace simt
