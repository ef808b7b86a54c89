#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"

namespace ringattn {

double measure_fma_peak(int threads, const std::string& isa, double seconds) {
  check_threads(threads);
  const cpu::Target& target = cpu::target_named(isa);
  // Chunks of a few milliseconds, of which the best one counts: what another process takes away is not this
  // machine's ceiling.
  constexpr index_t kIterations = index_t{1} << 20;
  const double flops = static_cast<double>(kIterations) * target.fma_flops * threads;
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const Clock::time_point begin = Clock::now();
  double best = 0;
  std::atomic<float> sink = 0;  // keeps the chains alive
  do {
    const Clock::time_point start = Clock::now();
    cpu::parallel_tasks(threads, threads, [&](index_t, int) { sink = target.fma_chains(kIterations, 1.0f); });
    best = std::max(best, flops / elapsed(start));
  } while (elapsed(begin) < seconds);
  return best;
}

}  // namespace ringattn
