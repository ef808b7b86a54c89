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

Timing forward(const RingRun& run) {
  const ShardViews& t = run.tensors;
  return call([&] { return run.ring.forward(t.q, t.k, t.v, t.out, t.lse); });
}

Timing backward(const RingRun& run) {
  return call([&] { return run.ring.backward(run.tensors.backward_inputs(), run.tensors.gradients); });
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void sleep_for(std::chrono::milliseconds time) {
  if (time.count() > 0) std::this_thread::sleep_for(time);
}

Iteration on_host(const RingRun& run, Direction direction, std::chrono::milliseconds sleep) {
  const auto start = Clock::now();
  sleep_for(sleep);
  Iteration iteration;
  const auto timed = [&](auto& pass, double Iteration::*seconds) {
    const auto begin = Clock::now();
    const Timing timing = pass(run);
    iteration.*seconds = seconds_since(begin);
    iteration.compute += timing.compute();
    iteration.wait += timing.wait();
  };
  if (direction != Direction::backward) timed(forward, &Iteration::forward);
  if (direction != Direction::forward) timed(backward, &Iteration::backward);
  iteration.seconds = seconds_since(start);
  return iteration;
}

// Between the marks nothing waits on the host, which is to be ahead of the device. The stream is empty at the
// first mark, so what the host takes to queue the first work counts, as it does for whoever calls.
Iteration on_device(const RingRun& run, Direction direction, std::chrono::milliseconds sleep) {
  StreamMark start, between, end;
  start.set(*run.stream);
  sleep_for(sleep);
  if (direction != Direction::backward) forward(run);
  between.set(*run.stream);
  if (direction != Direction::forward) backward(run);
  end.set(*run.stream);
  run.ring.settle();
  Iteration iteration;
  if (direction != Direction::backward) iteration.forward = between.seconds_since(start);
  if (direction != Direction::forward) iteration.backward = end.seconds_since(between);
  iteration.seconds = end.seconds_since(start);
  return iteration;
}

// Counters are read outside the clock.
Iteration one_iteration(const RingRun& run, Direction direction, std::chrono::milliseconds sleep) {
  const SentCount before = run.link.sent();
  Iteration iteration =
      run.stream == nullptr ? on_host(run, direction, sleep) : on_device(run, direction, sleep);
  const SentCount after = run.link.sent();
  iteration.bytes = after.bytes - before.bytes;
  iteration.messages = after.messages - before.messages;
  return iteration;
}

}  // namespace

Iterations time_iterations(const RingRun& run, Direction direction, const Repeats& repeats,
                           const IterationHooks& hooks, std::chrono::milliseconds patience) {
  if (direction == Direction::backward) forward(run);
  std::vector<Iteration> mine;
  for (int i = 0; i < repeats.warmup + repeats.timed; ++i) {
    const bool timed = i >= repeats.warmup;
    if (hooks.before)
      hooks.before(timed ? i - repeats.warmup : i, timed ? repeats.timed : repeats.warmup, timed);
    meet(run.ranks, patience);
    const Iteration iteration = one_iteration(run, direction, hooks.sleep);
    if (timed) mine.push_back(iteration);
  }
  // As bytes: ranks run the same program, and the iterations are plain numbers.
  Iterations all;
  for (const auto& blob : run.ranks.all_gather(std::as_bytes(std::span(mine)), Clock::now() + patience)) {
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
