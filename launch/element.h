// One element of a tensor: between fp32 and the bits of its type in memory.
#pragma once
#include <cstddef>

#include "src/types.h"

namespace ringattn::launch {

// The element at `at`, exactly.
float load_element(DType type, const std::byte* at);
// Rounded to nearest even; overflow becomes infinity, NaN stays NaN.
void store_element(DType type, float value, std::byte* at);
// The value that storing and loading gives.
float rounded(DType type, float value);

}  // namespace ringattn::launch
