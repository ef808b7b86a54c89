#include "bench/gpu/tensor_map.h"

#include <string>

#include "bench/gpu/device.h"
#include "src/error.h"

namespace ringattn::acceptance {

// The driver's function is asked for at run time, so that the program links without a driver.
CUtensorMap tensor_map(void* base, const std::vector<cuuint64_t>& dims,
                       const std::vector<cuuint64_t>& strides, const std::vector<cuuint32_t>& box) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw DeviceError("this driver has no cuTensorMapEncodeTiled");
  const std::vector<cuuint32_t> steps(dims.size(), 1);
  CUtensorMap map;
  const CUresult code = reinterpret_cast<Encode>(function)(
      &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, static_cast<cuuint32_t>(dims.size()), base, dims.data(),
      strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS)
    throw DeviceError("cuTensorMapEncodeTiled refused the tensor: code " +
                      std::to_string(static_cast<int>(code)));
  return map;
}

CUtensorMap tensor_map(void* base, const std::array<cuuint64_t, 3>& dims,
                       const std::array<cuuint32_t, 3>& box) {
  return tensor_map(base, {dims.begin(), dims.end()}, {dims[0] * 2, dims[0] * dims[1] * 2},
                    {box.begin(), box.end()});
}

}  // namespace ringattn::acceptance
