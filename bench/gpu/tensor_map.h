// Tensor maps, as TMA reads them.
#pragma once
#include <cuda.h>

#include <array>
#include <vector>

namespace ringattn::acceptance {

// A tensor of 16-bit elements, x innermost, in 128-byte swizzle: dims and box in elements, strides in bytes
// from the second dimension on. Throws DeviceError with the driver's code.
CUtensorMap tensor_map(void* base, const std::vector<cuuint64_t>& dims,
                       const std::vector<cuuint64_t>& strides, const std::vector<cuuint32_t>& box);
// The same of a contiguous tensor of three dimensions.
CUtensorMap tensor_map(void* base, const std::array<cuuint64_t, 3>& dims,
                       const std::array<cuuint32_t, 3>& box);

}  // namespace ringattn::acceptance
