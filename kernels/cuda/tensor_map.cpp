#include "kernels/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/device_error.h"
#include "src/error.h"

namespace ringattn::cuda {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                 const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

// The one call of the driver's own API; asked for at run time, the library builds and loads without a driver.
EncodeTiled encode_tiled() {
  constexpr unsigned kSince = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault,
                                              &found),
             "cuTensorMapEncodeTiled");
  if (found != cudaDriverEntryPointSuccess || !function)
    throw DeviceError("cuTensorMapEncodeTiled: the driver has no such function; CUDA 12.0 has");
  return reinterpret_cast<EncodeTiled>(function);
}

}  // namespace

CUtensorMap tensor_map(const Rows& rows, DType dtype, index_t heads, int dim, int box_rows, int box_heads) {
  constexpr cuuint32_t kRank = 3, kBoxColumns = 64;
  const auto row_bytes = static_cast<cuuint64_t>(rows.stride) * size_of(dtype);
  const cuuint64_t dims[kRank] = {static_cast<cuuint64_t>(dim), static_cast<cuuint64_t>(rows.rows),
                                  static_cast<cuuint64_t>(heads)};
  const cuuint64_t strides[kRank - 1] = {row_bytes, row_bytes * static_cast<cuuint64_t>(rows.rows)};
  const cuuint32_t box[kRank] = {kBoxColumns, static_cast<cuuint32_t>(box_rows),
                                 static_cast<cuuint32_t>(box_heads)},
                   steps[kRank] = {1, 1, 1};
  CUtensorMap map{};
  const CUresult result = encode_tiled()(
      &map, dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, kRank,
      rows.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled: error " + std::to_string(result) + " for " +
                      std::to_string(heads) + " heads of " + std::to_string(rows.rows) + " rows of " +
                      std::to_string(row_bytes) + " bytes");
  return map;
}

}  // namespace ringattn::cuda
