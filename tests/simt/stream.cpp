#include "tests/simt/stream.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "tests/simt/fault.h"

namespace simt {

System& System::get() {
  static System s;
  return s;
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
  if (lost_) return;
  op.enqueued_after = host_clock;
  if (s.queue.empty()) s.priority = dice().next();
  s.queue.push_back(std::move(op));
  wake_.notify_all();
}

Stream* System::pick(Device& d, Stream* wanted) {
  std::erase_if(d.streams, [](auto& s) { return s->closing && s->queue.empty() && !s->busy; });
  // Random priorities, kept for a while, explore orders far better than a die per step: one
  // stream may run to its end before another begins, which is where a missing wait shows.
  if (dice().below(16) == 0)
    for (auto& s : d.streams) s->priority = dice().next();
  Stream* best = nullptr;
  for (auto& s : d.streams) {
    if (s->queue.empty() || s->busy) continue;
    const Operation& head = s->queue.front();
    if (head.ready && !head.ready()) continue;
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
  lock.unlock();
  join(s.actor.clock, op.enqueued_after);
  s.actor.begin_operation();
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
  for (auto& d : devices_)
    for (auto& s : d->streams) s->queue.clear();
  if (in_ranks_ && !lost_) lost_ = error;
  wake_.notify_all();
  wake_.wait(lock, [&] { return running_ == 0; });
  std::rethrow_exception(error);
}

bool System::blame(std::exception_ptr fault) {
  std::lock_guard lock(mutex_);
  if (in_ranks_ && !lost_) lost_ = fault;
  wake_.notify_all();
  return in_ranks_;
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
  const std::exception_ptr first = lost_;
  ranks_ = 1;
  in_ranks_ = false;
  lost_ = nullptr;
  for (auto& d : devices_) {  // what a failed run left queued must not leak into the next one
    for (auto& s : d->streams) s->queue.clear();
    std::erase_if(d->streams, [](auto& s) { return s->closing; });
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace simt
