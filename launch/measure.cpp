#include "launch/measure.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "launch/steps.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

Iteration one_iteration(RingAttention& ring, Communicator& comm, const ShardTensors& tensors,
                        std::chrono::milliseconds sleep) {
  // Counters are read outside the clock.
  const SentCount before = comm.sent();
  const auto start = Clock::now();
  if (sleep.count() > 0) std::this_thread::sleep_for(sleep);
  Timing timing;
  try {
    timing = ring.forward(tensors.q_view, tensors.k_view, tensors.v_view, tensors.out_view, tensors.lse_view);
  } catch (const UsageError&) {
    throw SharedFailure(
        failure_of(std::current_exception()));  // the same on every rank, before any byte moved
  }
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  const SentCount after = comm.sent();
  return {.seconds = elapsed.count(),
          .compute = timing.compute(),
          .wait = timing.wait(),
          .bytes = after.bytes - before.bytes,
          .messages = after.messages - before.messages};
}

}  // namespace

Iterations time_iterations(RingAttention& ring, Communicator& comm, const ShardTensors& tensors,
                           const Repeats& repeats, const IterationHooks& hooks,
                           std::chrono::milliseconds patience) {
  std::vector<Iteration> mine;
  for (int i = 0; i < repeats.warmup + repeats.timed; ++i) {
    const bool timed = i >= repeats.warmup;
    if (hooks.before)
      hooks.before(timed ? i - repeats.warmup : i, timed ? repeats.timed : repeats.warmup, timed);
    meet(comm, patience);
    const Iteration iteration = one_iteration(ring, comm, tensors, hooks.sleep);
    if (timed) mine.push_back(iteration);
  }
  // As bytes: ranks run the same program, and the iterations are plain numbers.
  Iterations all;
  for (const auto& blob : comm.all_gather(std::as_bytes(std::span(mine)), Clock::now() + patience)) {
    if (blob.size() != mine.size() * sizeof(Iteration))
      throw std::logic_error("iterations of the wrong number");
    all.emplace_back(mine.size());
    std::memcpy(all.back().data(), blob.data(), blob.size());
  }
  return all;
}

std::vector<double> slowest(const Iterations& iterations, double Iteration::*figure) {
  std::vector<double> worst(iterations.at(0).size(), 0.0);
  for (const auto& rank : iterations) {
    for (std::size_t i = 0; i < worst.size(); ++i) worst[i] = std::max(worst[i], rank[i].*figure);
  }
  return worst;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) throw std::logic_error("spread of nothing");
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return {.min = values.front(),
          .median = (values[(n - 1) / 2] + values[n / 2]) / 2,
          .mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(n),
          .max = values.back()};
}

}  // namespace ringattn::launch
