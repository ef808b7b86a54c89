#include "tests/simt/stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include "tests/simt/fault.h"
#include "tests/simt/memory.h"

namespace simt {
namespace {

// Whether what stands at the head of the stream could run now; with the lock of the system held.
bool can_run(const Stream& s) {
  return !s.queue.empty() && !s.busy && (!s.queue.front().ready || s.queue.front().ready());
}
bool gone(const Stream& s) { return s.closing && s.queue.empty() && !s.busy; }

}  // namespace

System& System::get() {
  static System s;
  return s;
}

// What work at the end of the process touches is made before the system, so that it goes after it.
System::System() { (void)allocated_bytes(0); }

// On a thread of its own: the fibers that this thread keeps for its blocks are gone by now.
System::~System() {
  std::thread([this] {
    try {
      finish_destroyed();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "simt: work left in a destroyed stream, at the end of the process: %s\n",
                   error.what());
      std::_Exit(1);
    }
  }).join();
}

Device& System::device(int index) {
  std::lock_guard lock(mutex_);
  while (static_cast<int>(devices_.size()) <= index) devices_.push_back(std::make_unique<Device>());
  return *devices_[static_cast<std::size_t>(index)];
}

// Tests change the seed between runs; each run then replays by itself.
Random& System::dice() {
  if (seeded_with_ != config().seed) {
    seeded_with_ = config().seed;
    random_ = Random(seeded_with_);
  }
  return random_;
}

void System::push(Stream& s, Operation op) {
  std::lock_guard lock(mutex_);
  if (lost_) {
    dropped_.push_back(std::move(op));
    return;
  }
  op.enqueued_after = host_clock;
  if (s.queue.empty()) s.priority = dice().next();
  s.queue.push_back(std::move(op));
  wake_.notify_all();
}

Stream* System::pick(Device& d, Stream* wanted) {
  std::erase_if(d.streams, [](auto& s) { return gone(*s); });
  // Random priorities, kept for a while, explore orders far better than a die per step: one
  // stream may run to its end before another begins, which is where a missing wait shows.
  if (dice().below(16) == 0)
    for (auto& s : d.streams) s->priority = dice().next();
  Stream* best = nullptr;
  for (auto& s : d.streams) {
    if (!can_run(*s)) continue;
    if (s.get() == wanted) return wanted;
    if (!best || s->priority > best->priority) best = s.get();
  }
  return best;
}

// A device works whether or not its host thread waits, so one that waits runs for all.
Stream* System::pick_anywhere() {
  for (auto& d : devices_)
    if (Stream* s = pick(*d, nullptr)) return s;
  return nullptr;
}

void System::run_head(Stream& s, Lock& lock) {
  Operation op = std::move(s.queue.front());
  s.queue.pop_front();
  s.busy = true;
  ++running_;
  join(s.actor.clock, op.enqueued_after);  // others read this clock, with the lock
  s.actor.begin_operation();
  lock.unlock();
  std::exception_ptr error;
  try {
    const ActingAs stream(&s.actor);
    op.run();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  s.busy = false;
  --running_;
  wake_.notify_all();
  if (error) std::rethrow_exception(error);
}

// A fault ends everything that is queued: its owner is about to unwind and free the memory that
// other ranks' operations refer to. So nobody leaves before the last running operation is done.
void System::fail(Lock& lock, std::exception_ptr error) {
  drop([](const Stream&) { return true; });
  if (in_ranks_ && !lost_) lost_ = error;
  wake_.notify_all();
  wake_.wait(lock, [&] { return running_ == 0; });
  forget_dropped(lock);
  std::rethrow_exception(error);
}

bool System::blame(std::exception_ptr fault) {
  std::lock_guard lock(mutex_);
  if (in_ranks_ && !lost_) lost_ = fault;
  wake_.notify_all();
  return in_ranks_;
}

void System::drop(bool (*from)(const Stream&)) {
  for (auto& d : devices_)
    for (auto& s : d->streams) {
      if (!from(*s)) continue;
      std::move(s->queue.begin(), s->queue.end(), std::back_inserter(dropped_));
      s->queue.clear();
    }
}

void System::forget_dropped(Lock& lock) {
  for (auto& d : devices_) std::erase_if(d->streams, [](auto& s) { return gone(*s); });
  const auto dropped = std::exchange(dropped_, {});
  lock.unlock();  // what goes with the dropped work may call the runtime
}

// One that brings the destroyed streams nearer to their end: one of them, or one that they may wait for.
Stream* System::pick_destroyed() {
  bool left = false;
  for (auto& d : devices_)
    for (auto& s : d->streams) {
      if (!s->closing) continue;
      if (can_run(*s)) return s.get();
      left = left || !gone(*s);
    }
  return left ? pick_anywhere() : nullptr;
}

void System::finish_destroyed() {
  Lock lock(mutex_);
  for (;;) {
    if (Stream* s = pick_destroyed())
      run_head(*s, lock);
    else if (running_ > 0)
      wake_.wait(lock);
    else
      break;
  }
  drop([](const Stream& s) { return s.closing; });  // what it waits for never comes
  forget_dropped(lock);
}

// Exact, because everything that could change the answer happens under the lock.
bool System::stuck() const {
  return running_ == 0 && static_cast<int>(waiters_.size()) >= ranks_ &&
         std::none_of(waiters_.begin(), waiters_.end(), [](Waiter done) { return (*done)(); });
}

void System::drain(Device& d, Stream* wanted, const std::function<bool()>& done) {
  Lock lock(mutex_);
  // Half of the time nothing runs but what was asked for, as far as that is possible: the worst
  // case for a program that waits for the wrong stream.
  if (dice().below(2)) wanted = nullptr;
  try {
    for (;;) {
      if (lost_) std::rethrow_exception(lost_);  // first: it emptied the queues, all looks done
      if (done()) return;
      Stream* s = pick(d, wanted);
      if (!s) s = pick_anywhere();
      if (s) {
        run_head(*s, lock);
        continue;
      }
      waiters_.push_back(&done);
      const bool deadlock = stuck();
      if (!deadlock) wake_.wait(lock);
      std::erase(waiters_, &done);
      if (deadlock) throw Fault(FaultKind::deadlock, stuck_report());
    }
  } catch (...) {
    fail(lock, std::current_exception());
  }
}

void System::step(Device& d) {
  Lock lock(mutex_);
  try {
    if (lost_) std::rethrow_exception(lost_);  // or a polling loop would go on to its deadline
    if (Stream* s = pick(d, nullptr)) run_head(*s, lock);
  } catch (...) {
    fail(lock, std::current_exception());
  }
}

std::string System::stuck_report() const {
  std::string text = "no stream can go on:";
  for (std::size_t i = 0; i < devices_.size(); ++i)
    for (std::size_t j = 0; j < devices_[i]->streams.size(); ++j) {
      const auto& q = devices_[i]->streams[j]->queue;
      if (!q.empty())
        text += "\n  device " + std::to_string(i) + " stream " + std::to_string(j) + ": " +
                std::to_string(q.size()) + " queued, first is " + q.front().name;
    }
  return text;
}

void System::run_ranks(int n, const std::function<void(int)>& rank) {
  locked([&] { ranks_ = n, in_ranks_ = true, random_ = Random(config().seed); });
  const StreamClock start = host_clock;
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      current_device = r;
      host_clock = start;
      std::exception_ptr error;
      try {
        rank(r);
      } catch (...) {
        error = std::current_exception();
      }
      Lock lock(mutex_);
      --ranks_;  // a rank that has left cannot help the others any more
      // Did it leave the others stuck? They do not look by themselves.
      if (!error && !waiters_.empty() && !pick_anywhere() && stuck())
        error = std::make_exception_ptr(Fault(FaultKind::deadlock, stuck_report()));
      if (error && !lost_) lost_ = error;
      wake_.notify_all();
    });
  for (auto& t : threads) t.join();
  locked([&] { ranks_ = 1, in_ranks_ = false; });
  try {
    if (lost_) std::rethrow_exception(std::exchange(lost_, nullptr));
    finish_destroyed();
  } catch (...) {  // what a failed run left queued must not leak into the next one
    Lock lock(mutex_);
    fail(lock, std::current_exception());
  }
}

}  // namespace simt
