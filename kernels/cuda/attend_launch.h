// Body of launch_attend_of, for the files that instantiate it.
#pragma once
#include "kernels/cuda/attend.h"
#include "kernels/cuda/grid.h"
#include "kernels/cuda/typed_launches.h"

namespace ringattn::cuda {

template <class T>
void launch_attend_of(const AttendParams& params, cudaStream_t stream) {
  const int shared = attend_shared(params.head_dim, params.dim_v).total;
  with_tiles(params.dim_v, [&](auto tiles) {
    start("attend", attend_kernel<T, decltype(tiles)::value>, params.walk.count * params.all_heads, shared,
          params, stream);
  });
}

}  // namespace ringattn::cuda
