#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"

namespace ringattn {
namespace {

// The one place that knows which instruction counts.
bool multiplies_pairs(DType dtype, const cpu::Target& target) {
  return dtype == DType::bf16 && target.pairs != nullptr;
}

}  // namespace

std::string cpu_product(DType dtype, const std::string& isa) {
  return multiplies_pairs(dtype, cpu::target_named(isa)) ? "bf16 dot-product" : "FMA";
}

double measure_fma_peak(int threads, const std::string& isa, double seconds) {
  return measure_product_peak(DType::f32, threads, isa, seconds);
}

double measure_product_peak(DType dtype, int threads, const std::string& isa, double seconds) {
  check_threads(threads);
  const cpu::Target& target = cpu::target_named(isa);
  const bool pairs = multiplies_pairs(dtype, target);
  const auto chains = pairs ? target.pairs->dot_chains : target.fma_chains;
  // Chunks of a few milliseconds, of which the best one counts: what another process takes away is not this
  // machine's ceiling.
  constexpr index_t kIterations = index_t{1} << 20;
  const int iteration_flops = (pairs ? 2 : 1) * target.fma_flops;
  const double flops = static_cast<double>(kIterations) * iteration_flops * threads;
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const Clock::time_point begin = Clock::now();
  double best = 0;
  std::atomic<float> sink = 0;  // keeps the chains alive
  do {
    const Clock::time_point start = Clock::now();
    cpu::parallel_tasks(threads, threads, [&](index_t, int) { sink = chains(kIterations, 1.0f); });
    best = std::max(best, flops / elapsed(start));
  } while (elapsed(begin) < seconds);
  return best;
}

}  // namespace ringattn
