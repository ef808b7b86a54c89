// head_dim and head_dim_v become compile-time: the smallest shape that has room for both.
#pragma once
#include "kernels/cuda/sm90/backward_shape.h"
#include "src/types.h"

namespace ringattn::cuda::sm90 {

template <class Action>
auto with_shape(index_t head_dim, index_t dim_v, const Action& action) {
  if (head_dim <= 64 && dim_v <= 64) return action(Shape<64, 64>{});
  if (head_dim <= 128 && dim_v <= 128) return action(Shape<128, 128>{});
  if (head_dim <= 192 && dim_v <= 128) return action(Shape<192, 128>{});
  return action(Shape<256, 256>{});
}

// Up to kMostBackwardDim.
template <class Action>
auto with_backward_shape(index_t head_dim, index_t dim_v, const Action& action) {
  if (head_dim <= 64 && dim_v <= 64) return action(BackwardShape<64>{});
  return action(BackwardShape<128>{});
}

}  // namespace ringattn::cuda::sm90
