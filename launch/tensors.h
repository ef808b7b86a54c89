// The tensors of one rank's shard in this program's own memory, dense, and what they and the work on them
// take.
#pragma once
#include <cstddef>
#include <vector>

#include "launch/machine.h"
#include "src/attention.h"

namespace ringattn::launch {

// A shard as the ring takes it, wherever it lies.
struct ShardViews {
  ConstTensorView q, k, v;
  TensorView out;
  LseView lse;
  ConstTensorView dout;  // this and the gradients have no dimensions in Pass::forward
  Gradients gradients;

  BackwardInputs backward_inputs() const {
    return {.dout = dout, .q = q, .k = k, .v = v, .out = as_const(out), .lse = as_const(lse)};
  }
};

struct ShardTensors {
  std::vector<std::byte> q, k, v, out;
  std::vector<float> lse;
  std::vector<std::byte> dout, dq, dk, dv;  // empty in Pass::forward
  ShardViews views;                         // of these
};

// Bytes that allocate_shard takes for a rank.
double shard_bytes(const Problem& problem, const Sharding& sharding, int rank, Pass pass = Pass::forward);

// Throws OutOfMemory if a rank needs more bytes than it may still have: "needs 12.4 GiB per rank, 8.0 GiB
// available (MemAvailable)".
void require_memory(double needed, const MemoryRoom& room);

// What is computed starts as NaN, so that what nobody writes is seen.
ShardTensors allocate_shard(const Problem& problem, const Sharding& sharding, int rank,
                            Pass pass = Pass::forward);

}  // namespace ringattn::launch
