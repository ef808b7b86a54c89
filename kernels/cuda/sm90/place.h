// Chapter 3: the order in which blocks of threads come to heads and groups.
#pragma once
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda::sm90 {

// Where a block of threads works.
struct Place {
  index_t head, group;
};
// Groups are sorted longest first. They come in this order, each of all heads of a section; one section comes
// after the other. So long blocks do not begin last, and the heads at work, a section of them, share what L2
// holds of the other side's rows.
__device__ __forceinline__ Place place_of(index_t block, index_t groups, index_t heads, index_t section) {
  const index_t first = block / (groups * section) * section;
  const index_t count = heads - first < section ? heads - first : section;
  const index_t rest = block - first * groups;
  return {.head = first + rest % count, .group = rest / count};
}

}  // namespace ringattn::cuda::sm90
