// What the threads of a backward call wait for: each other, so that every sum is formed in one order, and the
// bytes of the gradient block, so that none is touched before it has arrived.
#pragma once
#include <atomic>
#include <exception>
#include <vector>

#include "kernels/kernel.h"

namespace ringattn::cpu {

// Tasks of a head are started in ascending order and walk over the same positions (a position is a group of
// one query head). dQ of a position is added to by one task after the other: a task goes on when all earlier
// ones have passed the position, whichever thread they run on. The earliest unfinished task waits for nobody,
// so there is no deadlock.
//
// Thread 0 is the caller: it alone calls `poll` and `arrived`, in every wait and whenever it breathes. What
// they throw stops all waits; the first one that throws is rethrown there, and the others return false.
class BackwardOrder {
 public:
  BackwardOrder(index_t tasks, index_t tasks_a_head, const GradientBlock& gradients, const Poll& poll);

  // All positions before this one are passed.
  void pass(index_t task, index_t position);
  // The task has passed all of them.
  void finish(index_t task);

  // Both return false if the call is to be given up.
  bool wait_for_earlier(index_t task, index_t position, int thread);
  bool wait_for_bytes(std::size_t end, int thread);

  // Lets transfers progress, if this is the caller's thread.
  void breathe(int thread);
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }
  // Stops all waits if `action` throws.
  template <class Action>
  void guard(const Action& action) {
    try {
      action();
    } catch (...) {
      stopped_.store(true);
      throw;
    }
  }

 private:
  template <class Ready>
  bool wait(const Ready& ready, int thread);

  const GradientBlock& gradients_;
  const Poll& poll_;
  index_t tasks_a_head_;
  std::vector<std::atomic<index_t>> passed_;  // of each task
  std::atomic<std::size_t> available_;        // bytes that may be touched
  std::atomic<bool> stopped_{false};
};

}  // namespace ringattn::cpu
