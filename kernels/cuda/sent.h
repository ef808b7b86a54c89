// Small things on the device, sent there for as long as one call's work lasts: freed in the order of the
// stream.
#pragma once
#include "kernels/cuda/memory.h"
#include "kernels/cuda/schedule.h"
#include "kernels/cuda/turns.h"

namespace ringattn::cuda {

struct SentWalk {
  DeviceMemory memory;
  Walk walk;
  const Merge* merges;
};
SentWalk send(Uploads& uploads, const Schedule& schedule);

// With counters that are 0. `heads` are those of the queries.
struct SentTurns {
  DeviceMemory runs, counters;
  Turns turns;
};
SentTurns send(Uploads& uploads, const TurnList& list, index_t q_rows, index_t heads, cudaStream_t stream);

struct SentRows {
  DeviceMemory memory;
  const index_t* first_rows;
};
SentRows send(Uploads& uploads, const std::vector<index_t>& first_rows);

struct SentAngles {
  DeviceMemory memory;
  Turn turn;
};
// Of rows [0, rows), formed by `threads` threads of the host before the call returns.
SentAngles send(Uploads& uploads, const Rotation& rotation, index_t rows, bool back, int threads);

}  // namespace ringattn::cuda
