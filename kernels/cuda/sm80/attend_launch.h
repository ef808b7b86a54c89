// Body of launch_attend, for the files that instantiate it.
#pragma once
#include "kernels/cuda/grid.h"
#include "kernels/cuda/sm80/attend.h"
#include "kernels/cuda/sm80/dims.h"
#include "kernels/cuda/sm80/launches.h"

namespace ringattn::cuda::sm80 {

template <class T>
void launch_attend(const AttendParams& params, cudaStream_t stream) {
  with_dims(params.head_dim, params.dim_v, [&](auto dims) {
    constexpr int kDim = decltype(dims)::kK, kDimV = decltype(dims)::kV;
    using Tiles = AttendTiles<kDim, kDimV>;
    start("sm_80 attend", attend_kernel<T, kDim, kDimV>, params.walk.count * all_packs(params),
          Tiles::kTotal / 4, params, stream);
  });
}

}  // namespace ringattn::cuda::sm80
