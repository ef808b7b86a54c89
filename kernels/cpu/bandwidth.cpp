#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>

#include "kernels/check.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/target.h"
#include "src/error.h"

namespace ringattn {

double measure_read_bandwidth(int threads, std::size_t bytes, double seconds) {
  check_threads(threads);
  constexpr std::size_t kPiece = std::size_t{64} << 10;
  const auto team = static_cast<std::size_t>(threads);
  const std::size_t share = bytes / team / kPiece * kPiece;
  if (share == 0)
    throw UsageError("bytes: " + std::to_string(bytes) + " are less than 64 KiB for each of " +
                     std::to_string(threads) + " threads");
  const cpu::Target& target = cpu::target_named("auto");
  const Buffer buffer = cpu::allocate_zeroed(share * team, threads);
  const auto* all = reinterpret_cast<const float*>(buffer.data.get());
  const auto floats = static_cast<index_t>(share / sizeof(float));
  // So many passes at a time that starting the threads takes no part in it; of those the best ones count.
  const std::size_t passes = ((std::size_t{16} << 20) + share - 1) / share;
  const auto read = static_cast<double>(share * team * passes);
  using Clock = std::chrono::steady_clock;
  const auto elapsed = [](Clock::time_point since) {
    return std::chrono::duration<double>(Clock::now() - since).count();
  };
  const Clock::time_point begin = Clock::now();
  double best = 0;
  std::atomic<float> sink = 0;  // keeps the reads alive
  do {
    const Clock::time_point start = Clock::now();
    cpu::parallel_tasks(threads, threads, [&](index_t task, int) {
      for (std::size_t pass = 0; pass < passes; ++pass) sink = target.read_all(all + task * floats, floats);
    });
    best = std::max(best, read / elapsed(start));
  } while (elapsed(begin) < seconds);
  return best;
}

}  // namespace ringattn
