// Chapter 2: the rows of a block of threads, and what they see. group_rows is a power of two.
#pragma once
#include "kernels/cuda/block_rows.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/sm80/step.h"
#include "kernels/cuda/sm80/tile.h"

namespace ringattn::cuda::sm80 {

__device__ __forceinline__ Group block_group(const AttendParams& a) {
  return ptx::load_global(a.walk.groups + blockIdx.x % static_cast<unsigned>(a.walk.count));
}

// Cheap to form, and formed where it is wanted rather than kept in registers.
__device__ __forceinline__ BlockRows block_rows(const AttendParams& a) {
  return block_rows_of(a, block_group(a), blockIdx.x / static_cast<unsigned>(a.walk.count));
}

// Whether any row of the warp sees any column. Its rows may be of several heads, and then are all queries.
__device__ __forceinline__ bool warp_sees(const AttendParams& a, const Step& step, int row0, int rows) {
  if (a.group_rows < rows) return step.any_visible(0, a.group_rows);
  const int begin = row0 & (a.group_rows - 1);
  return step.any_visible(begin, begin + rows);
}

// What the row of a lane sees, of the part of 16 rows from row0 on.
__device__ __forceinline__ Step::Seen seen_by(const AttendParams& a, const Step& step, int row0, int half) {
  return step.seen_by((row0 + row_of_lane(half)) & (a.group_rows - 1));
}

}  // namespace ringattn::cuda::sm80
