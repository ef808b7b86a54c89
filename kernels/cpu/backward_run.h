// One attend_backward() call: all local queries against one block, spread over threads.
#pragma once
#include "kernels/cpu/backward_layout.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

struct BackwardRun {
  const Target& target;
  HeadShape shape;
  DType dtype;
  int threads;
  float slope;
  index_t q_rows;
  const RowsLayout& rows_layout;
  std::byte* rows;
  const BlockLayout& block_layout;
  const std::byte* block;
  index_t k_rows;
  const GradientLayout& gradient_layout;
  const GradientBlock& gradients;
  const ScratchLayout& scratch_layout;
  float* scratch;  // threads x scratch_layout.floats, 64-byte aligned
  const Schedule& schedule;
  index_t first_span;  // span ids of this call start here; greater than all before
};

// The number of span ids that a call with so many rows may use.
index_t backward_spans(index_t k_rows);

// A sum's bits depend on what is added and in which order of calls: not on threads, poll, nor on when bytes
// arrive. Rethrows what `poll` or GradientBlock::arrived throws; the state is then unusable.
void attend_block_backward(const BackwardRun& run, const Poll& poll);

}  // namespace ringattn::cpu
