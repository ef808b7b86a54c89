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

// A wrong argument is the same on every rank, before any byte moved.
Timing call(const std::function<Timing()>& pass) {
  try {
    return pass();
  } catch (const UsageError&) {
    throw SharedFailure(failure_of(std::current_exception()));
  }
}

Timing forward(RingAttention& ring, const ShardTensors& t) {
  return call([&] { return ring.forward(t.q_view, t.k_view, t.v_view, t.out_view, t.lse_view); });
}

Timing backward(RingAttention& ring, const ShardTensors& t) {
  return call([&] { return ring.backward(t.backward_inputs(), t.gradients); });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Iteration one_iteration(RingAttention& ring, Communicator& comm, const ShardTensors& tensors,
                        Direction direction, std::chrono::milliseconds sleep) {
  // Counters are read outside the clock.
  const SentCount before = comm.sent();
  const auto start = Clock::now();
  if (sleep.count() > 0) std::this_thread::sleep_for(sleep);
  Iteration iteration;
  const auto timed = [&](auto& pass, double Iteration::*seconds) {
    const auto begin = Clock::now();
    const Timing timing = pass(ring, tensors);
    iteration.*seconds = seconds_since(begin);
    iteration.compute += timing.compute();
    iteration.wait += timing.wait();
  };
  if (direction != Direction::backward) timed(forward, &Iteration::forward);
  if (direction != Direction::forward) timed(backward, &Iteration::backward);
  iteration.seconds = seconds_since(start);
  const SentCount after = comm.sent();
  iteration.bytes = after.bytes - before.bytes;
  iteration.messages = after.messages - before.messages;
  return iteration;
}

}  // namespace

Iterations time_iterations(RingAttention& ring, Communicator& comm, const ShardTensors& tensors,
                           Direction direction, const Repeats& repeats, const IterationHooks& hooks,
                           std::chrono::milliseconds patience) {
  if (direction == Direction::backward) forward(ring, tensors);
  std::vector<Iteration> mine;
  for (int i = 0; i < repeats.warmup + repeats.timed; ++i) {
    const bool timed = i >= repeats.warmup;
    if (hooks.before)
      hooks.before(timed ? i - repeats.warmup : i, timed ? repeats.timed : repeats.warmup, timed);
    meet(comm, patience);
    const Iteration iteration = one_iteration(ring, comm, tensors, direction, hooks.sleep);
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
