#include "kernels/cpu/backward_order.h"

#include <chrono>
#include <limits>
#include <thread>

namespace ringattn::cpu {
namespace {

constexpr index_t kFinished = std::numeric_limits<index_t>::max();

// What is waited for is usually less than a step of another thread away, 0.1 ms; a transfer may take long.
constexpr int kSpins = 64, kYields = 4096;

}  // namespace

BackwardOrder::BackwardOrder(index_t tasks, index_t tasks_a_head, const GradientBlock& gradients,
                             const Poll& poll)
    : gradients_(gradients),
      poll_(poll),
      tasks_a_head_(tasks_a_head),
      passed_(static_cast<std::size_t>(tasks)),
      available_(gradients.arrived ? 0 : gradients.bytes.size()) {}

void BackwardOrder::pass(index_t task, index_t position) {
  passed_[static_cast<std::size_t>(task)].store(position, std::memory_order_release);
}

void BackwardOrder::finish(index_t task) { pass(task, kFinished); }

template <class Ready>
bool BackwardOrder::wait(const Ready& ready, int thread) {
  for (int tries = 0; !ready(); ++tries) {
    if (stopped()) return false;
    if (thread == 0) {
      breathe(thread);
      if (tries > kSpins) std::this_thread::yield();
    } else if (tries > kYields) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (tries > kSpins) {
      std::this_thread::yield();
    }
  }
  return true;
}

bool BackwardOrder::wait_for_earlier(index_t task, index_t position, int thread) {
  // Not only the task before: one that sees nothing here may be past this position before its own predecessor
  // is. Most of them are finished, and stay so.
  index_t earlier = task / tasks_a_head_ * tasks_a_head_;
  return wait(
      [&] {
        while (earlier < task &&
               passed_[static_cast<std::size_t>(earlier)].load(std::memory_order_acquire) > position)
          ++earlier;
        return earlier == task;
      },
      thread);
}

bool BackwardOrder::wait_for_bytes(std::size_t end, int thread) {
  return wait([&] { return available_.load(std::memory_order_acquire) >= end; }, thread);
}

void BackwardOrder::breathe(int thread) {
  if (thread != 0) return;
  guard([&] {
    if (poll_) poll_();
    if (available_.load(std::memory_order_relaxed) < gradients_.bytes.size())
      available_.store(gradients_.arrived(), std::memory_order_release);
  });
}

}  // namespace ringattn::cpu
