// The tensors of one rank's shard in this program's own memory, dense, and what they and the work on them
// take.
#pragma once
#include <cstddef>
#include <vector>

#include "launch/machine.h"
#include "src/problem.h"

namespace ringattn::launch {

struct ShardTensors {
  std::vector<std::byte> q, k, v, out;
  std::vector<float> lse;
  ConstTensorView q_view, k_view, v_view;
  TensorView out_view;
  LseView lse_view;
};

// Bytes that allocate_shard takes for a rank.
double shard_bytes(const Problem& problem, const Sharding& sharding, int rank);

// Throws OutOfMemory if a rank needs more bytes than it may still have: "needs 12.4 GiB per rank, 8.0 GiB
// available (MemAvailable)".
void require_memory(double needed, const MemoryRoom& room);

// out and lse start as NaN, so that what nobody writes is seen.
ShardTensors allocate_shard(const Problem& problem, const Sharding& sharding, int rank);

}  // namespace ringattn::launch
