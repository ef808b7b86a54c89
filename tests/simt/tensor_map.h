// Tensor maps for tests.
#pragma once
#include <cuda.h>

#include <array>

#include "tests/simt/tma.h"

namespace simt {

// A contiguous tensor of 16-bit elements, x innermost, in 128-byte swizzle.
inline CUtensorMap half_map(void* base, const std::array<cuuint64_t, 3>& dims,
                            const std::array<cuuint32_t, 3>& box) {
  CUtensorMap map;
  const cuuint64_t strides[] = {dims[0] * 2, dims[0] * dims[1] * 2};
  const cuuint32_t steps[] = {1, 1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, base, dims.data(), strides, box.data(),
                             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    throw Fault(FaultKind::usage, "cuTensorMapEncodeTiled refused the tensor");
  return map;
}

}  // namespace simt
