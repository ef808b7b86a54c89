// Chapter 3: the order in which blocks of threads come to heads and groups.
#pragma once
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda::sm90 {

// Where a block of threads works. Of attend the heads here are packs of heads (block_rows.h).
struct Place {
  index_t head, group;
};
// Groups are sorted longest first. They come in this order, each of all heads of a section; one section comes
// after the other. So long blocks do not begin last, and the heads at work, a section of them, share what L2
// holds of the other side's rows. A launch has fewer than 2^31 blocks, and no more heads or groups than that.
__device__ __forceinline__ Place place_of(index_t block, index_t groups, index_t heads, index_t section) {
  const auto in_section = static_cast<unsigned>(groups * section), at = static_cast<unsigned>(block);
  const index_t first = at / in_section * section;
  const auto count = static_cast<unsigned>(heads - first < section ? heads - first : section);
  const auto rest = static_cast<unsigned>(block - first * groups);
  return {.head = first + rest % count, .group = rest / count};
}

}  // namespace ringattn::cuda::sm90
