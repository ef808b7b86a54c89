// Waiting by asking again and again: for transports that only move while they are called.
#pragma once
#include <cstddef>
#include <thread>

#include "comm/communicator.h"

namespace ringattn {

// Rests between two questions, the longer the less has moved of late. At first not at all, since a chunk
// takes less time than a change of threads; then it lets others run, since ranks may share cores; when
// nothing moves for long it sleeps, and a rank that waits for a slow peer leaves it the core.
class Backoff {
 public:
  // `moved`: any number that changes when something moves.
  void pause(std::size_t moved) {
    const auto now = Clock::now();
    if (moved != moved_) {
      moved_ = moved;
      quiet_since_ = now;
    }
    const auto quiet = now - quiet_since_;
    if (quiet < std::chrono::microseconds(100)) return;
    if (quiet < std::chrono::milliseconds(5)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  Deadline quiet_since_ = Clock::now();
  std::size_t moved_ = 0;
};

// Calls advance() until it returns true, or until the deadline: then false. The clock is read before the last
// question, so that a rank that was itself stopped past the deadline still finds what has arrived meanwhile.
template <class Advance, class Moved>
bool poll_until(Deadline deadline, Advance&& advance, Moved&& moved) {
  Backoff backoff;
  while (true) {
    const bool last = Clock::now() >= deadline;
    if (advance()) return true;
    if (last) return false;
    backoff.pause(moved());
  }
}

}  // namespace ringattn
