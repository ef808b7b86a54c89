// Backward of one block: the launches of a chapter, and what they wait for.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "kernels/cuda/chapter.h"
#include "kernels/cuda/memory.h"

namespace ringattn::cuda {

struct BackwardCall {
  const Chapter& chapter;
  GroupRows group_rows;  // the chapter's
  DType dtype;
  BackwardParams params;  // all but the walk and the turns; dk and dv are where the gradients are
  std::span<const Tile> tiles;
  const GradientBlock& gradients;
  const Poll& poll;
  Uploads& uploads;
  cudaStream_t stream;
};

// Adds to dq and to the gradients, whose sums may still be on their way: they are waited for as late as
// possible. Throws UsageError naming a tile that leaves the rows.
void add_gradients(const BackwardCall& call);

}  // namespace ringattn::cuda
