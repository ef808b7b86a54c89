// The one place where OpenMP is used.
#pragma once
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "kernels/kernel.h"

namespace ringattn::cpu {

// Calls body(task, thread) for every task in [0, count), in ascending order of start, on at most `threads`
// threads; thread 0 is the caller. After the first exception no further task starts, and it is rethrown here:
// nothing leaves the parallel region. The number of threads never comes from the environment.
//
// `idle`, if it is not empty, is called by the caller's thread when it finds no task left, and then every 50
// us while others still work, so that a transfer does not rest meanwhile.
template <class Body>
void parallel_tasks(int threads, index_t count, const Body& body, const Poll& idle = {}) {
  const int team = static_cast<int>(std::min<index_t>(threads, count));
  if (team < 1) return;
  std::atomic<index_t> next{0};
  std::atomic<int> working{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const auto guarded = [&](const auto& action) {
    try {
      action();
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  };
#pragma omp parallel num_threads(team)
  {
    const int thread = omp_get_thread_num();
    if (thread != 0) working.fetch_add(1);
    guarded([&] {
      for (index_t task = next++; task < count && !failed; task = next++) body(task, thread);
    });
    if (thread != 0) working.fetch_sub(1);
    if (thread == 0 && idle) {
      guarded([&] {
        idle();
        while (working.load() > 0 && !failed) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          idle();
        }
      });
    }
  }
  if (error) std::rethrow_exception(error);
}

// Calls body(thread, team) once on each of a team of at most `threads` threads, which is what first touch
// asks for: tasks above go to whoever comes first. `body` must not throw.
template <class Body>
void on_every_thread(int threads, const Body& body) {
  static_assert(noexcept(body(0, 1)));
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

}  // namespace ringattn::cpu
