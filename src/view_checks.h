// What a caller's tensor has to be. Errors name the tensor, what it is and what was expected. Internal to
// src/.
#pragma once
#include "src/types.h"

namespace ringattn {

struct ViewRule {
  DType dtype = DType::f32;
  MemorySpace space = MemorySpace::host;
};

// Shape, dtype and memory space as told, data where there are elements, last stride 1.
void check_view(const char* name, const ConstTensorView& view, const std::array<index_t, 4>& shape,
                const ViewRule& rule);
// Shape and memory space as told, last stride 1; data is the caller's to look at, since it may be missing.
void check_lse_view(const ConstLseView& lse, const std::array<index_t, 3>& shape, MemorySpace space);

// Two elements of an output must not share a place.
void check_writable(const char* name, const TensorView& view);
void check_writable(const char* name, const LseView& view);

}  // namespace ringattn
