// The tensors of one rank's shard in this program's own memory, dense, and what they and the work on them
// take.
#pragma once
#include <cstddef>
#include <vector>

#include "launch/machine.h"
#include "src/attention.h"

namespace ringattn::launch {

struct ShardTensors {
  std::vector<std::byte> q, k, v, out;
  std::vector<float> lse;
  std::vector<std::byte> dout, dq, dk, dv;  // empty in Pass::forward
  ConstTensorView q_view, k_view, v_view;
  TensorView out_view;
  LseView lse_view;
  ConstTensorView dout_view;
  Gradients gradients;

  BackwardInputs backward_inputs() const {
    return {.dout = dout_view,
            .q = q_view,
            .k = k_view,
            .v = v_view,
            .out = as_const(out_view),
            .lse = as_const(lse_view)};
  }
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
