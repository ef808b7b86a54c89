#include <algorithm>
#include <atomic>
#include <chrono>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "src/error.h"

namespace ringattn {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

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

double measure_read_bandwidth(int threads, std::size_t bytes, double seconds) {
  check_threads(threads);
  const auto team = static_cast<std::size_t>(threads);
  const std::size_t share = bytes / team / 64 * 64;
  if (share == 0)
    throw UsageError("bytes: " + std::to_string(bytes) + " are less than 64 for each of " +
                     std::to_string(threads) + " threads");
  const cpu::Target& target = cpu::target_named("auto");
  const Buffer buffer = cpu::allocate_zeroed(share * team, threads);
  // So many passes at a time that starting the threads takes no part in it.
  const std::size_t passes = ((std::size_t{16} << 20) + share - 1) / share;
  const auto words = static_cast<index_t>(share / sizeof(std::uint32_t));
  const auto* all = reinterpret_cast<const std::uint32_t*>(buffer.data.get());
  std::atomic<std::uint32_t> sink = 0;
  double best = 0;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    int members = 0;  // the OpenMP runtime may give fewer than were asked for
    cpu::on_every_thread(threads, [&](int thread, int team_size) noexcept {
      for (std::size_t pass = 0; pass < passes; ++pass) sink |= target.read_all(all + thread * words, words);
      if (thread == 0) members = team_size;
    });
    best = std::max(best, static_cast<double>(share * passes) * members / elapsed(start));
  } while (elapsed(begin) < seconds);
  return best;
}

}  // namespace ringattn
