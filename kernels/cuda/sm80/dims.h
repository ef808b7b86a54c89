// head_dim and head_dim_v become compile-time here: the smallest tiles that hold them. What is beyond them in
// a tile is 0.
#pragma once

namespace ringattn::cuda::sm80 {

inline constexpr int kLargestTileDim = 256;

template <int kDimK, int kDimV>
struct Dims {
  static constexpr int kK = kDimK, kV = kDimV;
};

// Calls action with the Dims that tiles have.
template <class Action>
void with_dims(int head_dim, int dim_v, const Action& action) {
  const int larger = head_dim > dim_v ? head_dim : dim_v;
  if (larger <= 64) return action(Dims<64, 64>{});
  if (larger <= 96) return action(Dims<96, 96>{});
  if (larger <= 128) return action(Dims<128, 128>{});
  if (larger <= 192 && dim_v <= 128) return action(Dims<192, 128>{});
  return action(Dims<256, 256>{});
}

}  // namespace ringattn::cuda::sm80
