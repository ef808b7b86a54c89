// Whole rings on the harness of tests/simt: the CUDA kernel and the ring loops as they are, ranks as threads,
// over any of the communicators for device memory.
#pragma once
#include <string>
#include <vector>

#include "src/executor.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {

// Who carries the blocks.
struct Carrier {
  std::string name;
  MakeDeviceCommunicator make;
  Devices devices = Devices::own;
};
// "nccl", "staged", "direct", "device_ranks", "one_device": all that comm/ has.
std::vector<Carrier> carriers();

// The chapters of kernels/cuda (KernelConfig::isa) that take this problem, from the plainest on: "plain", and
// those of the tensor cores where this build has them. What they refuse is for tests/cuda to judge.
std::vector<std::string> chapters(const Problem& problem);

// How a problem is run: nothing of it may change a bit of the answer, but for the chapter.
struct DeviceRing {
  Carrier carrier;
  Mode mode = Mode::overlap;
  std::uint64_t seed = 1;  // of the harness: when streams, blocks and threads have their turns
  std::string chapter = "auto";
  int calls = 1;  // each queued behind the one before, without waiting
  // Work on the caller's stream makes the inputs just before a call, and spoils them just behind it: the
  // library has to take its turn in that stream.
  bool late_inputs = false;
};
// "nccl, overlap, seed 1, auto"
std::string text(const DeviceRing& ring);

// All ranks: slots and outputs full of NaN, one call or more queued at once, and the end waited for. Expects
// that every rank has sent the bytes and messages of its plan. Throws what a rank throws, faults of the
// harness among them.
Answer run_ring(const DeviceRing& ring, const Problem& problem, const Sharding& sharding, const Inputs& in);
// Forward and, right behind it, backward. Expects that the inputs of backward are what they were.
GradientAnswer run_ring_gradients(const DeviceRing& ring, const Problem& problem, const Sharding& sharding,
                                  const Inputs& in);

}  // namespace ringattn::test
