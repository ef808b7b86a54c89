// Timed repeats of a pass or of both, seen from every rank.
#pragma once
#include <chrono>
#include <functional>
#include <vector>

#include "kernels/cuda/device_stream.h"
#include "launch/direction.h"
#include "launch/tensors.h"
#include "src/attention.h"

namespace ringattn::launch {

// One iteration on one rank.
struct Iteration {
  double seconds = 0;                     // from the common start to the end of this rank's last call
  double forward = 0, backward = 0;       // seconds of each call; 0 if there was none
  double compute = 0, wait = 0;           // of its hops: inside the kernel; waiting with nothing to compute.
                                          // 0 on a GPU, where hops overlap and nobody times them
  std::uint64_t bytes = 0, messages = 0;  // sent
};

// [rank][iteration], the same on every rank.
using Iterations = std::vector<std::vector<Iteration>>;

struct Repeats {
  int warmup = 0, timed = 1;
};

struct IterationHooks {
  std::chrono::milliseconds sleep{};                           // this rank's, at the start of each iteration
  std::function<void(int done, int of, bool timed)> before{};  // progress; may be empty
};

// What is timed, and by whose clock.
struct RingRun {
  RingAttention& ring;
  Communicator& ranks;       // by which they meet and gather
  const Communicator& link;  // of the ring, which counts what is sent
  const ShardViews& tensors;
  DeviceStream* stream = nullptr;  // of a ring on a GPU: events on it tell the time, those of the device
};

// Collective. Every iteration starts when all ranks are ready for it, and has ended on the device when this
// returns. Direction::backward: one forward pass comes first, untimed, for its out and lse.
Iterations time_iterations(const RingRun& run, Direction direction, const Repeats& repeats,
                           const IterationHooks& hooks, std::chrono::milliseconds patience);

// For each iteration the largest figure of any rank: what the job as a whole took.
std::vector<double> slowest(const Iterations& iterations, double Iteration::*figure);

struct Spread {
  double min = 0, median = 0, mean = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // of at least one value

}  // namespace ringattn::launch
