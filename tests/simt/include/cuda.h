// Stand-in for cuda.h: tensor maps, the one part of the driver API that the library uses.
#pragma once
#include <cstdint>

enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion {
  CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };
using cuuint32_t = std::uint32_t;
using cuuint64_t = std::uint64_t;

// The driver's 128 opaque bytes; here what they stand for.
struct alignas(64) CUtensorMap {
  const unsigned char* base;
  std::uint32_t rank, element_bytes;
  bool swizzle_128b;
  std::uint64_t dim[5];     // elements, innermost first
  std::uint64_t stride[5];  // bytes; stride[0] is the element
  std::uint32_t box[5];
};
