// Attention of all local queries over one block, spread over threads.
#pragma once
#include <span>

#include "kernels/cpu/packed.h"
#include "kernels/cpu/queries.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

// Floats of scratch that a thread needs: a task's groups, their states over a span of keys, and, but for f32,
// which is used in place, one block of 64 keys widened; for bf16 a group's queries, too.
index_t scratch_floats(const HeadShape& shape, DType dtype);

// Where rows go when they have seen all that they will see.
struct Outputs {
  TensorView out;
  LseView lse;
  bool stream;  // see streams()
};

struct AttendRun {
  const Target& target;
  HeadShape shape;
  DType dtype;
  int threads;
  float slope;
  const Queries& queries;
  const StateLayout& state_layout;
  std::byte* state;
  const BlockLayout& block_layout;
  const std::byte* block;
  index_t k_rows;
  float* scratch;  // threads x scratch_floats, 64-byte aligned
  const Schedule& schedule;
  const Outputs* outputs;  // not null: no further block follows, and rows may be written to them at once
};

// A row's result depends on its own keys and their order alone: not on threads, poll, or how rows are dealt
// out. Rethrows what `poll` throws; the state is then unusable.
void attend_block(const AttendRun& run, const Poll& poll);

}  // namespace ringattn::cpu
