// Tensor maps of arrays of rows (layout.h), for TMA loads into tiles of 128-byte swizzle.
#pragma once
#include <cuda.h>

#include "kernels/cuda/params.h"

namespace ringattn::cuda {

// [heads][rows.rows][dim] of a 16-bit dtype, with boxes of 64 elements of `box_rows` rows of each of
// `box_heads` heads (at most 256 either). What a box has beyond the array is loaded as 0. Throws DeviceError
// if the driver has no tensor maps or refuses this one; there must be at least one row.
CUtensorMap tensor_map(const Rows& rows, DType dtype, index_t heads, int dim, int box_rows,
                       int box_heads = 1);

}  // namespace ringattn::cuda
