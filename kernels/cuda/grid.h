// What the launches share: the shape of a launch, and run-time values that become types and constants.
#pragma once
#include <limits>
#include <string>

#include "kernels/cuda/device_error.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"
#include "src/error.h"

namespace ringattn::cuda {

// Calls action with an element of that type.
template <class Action>
void with_element(DType dtype, const Action& action) {
  switch (dtype) {
    case DType::f32:
      return action(float{});
    case DType::bf16:
      return action(Bf16{});
    case DType::f16:
      return action(F16{});
  }
}

template <int n>
struct Tiles {
  static constexpr int value = n;
};
// Calls action with the number of dimensions, in units of 32, that a lane's registers are made for.
template <class Action>
void with_tiles(int dim, const Action& action) {
  if (dim <= 64) return action(Tiles<2>{});
  if (dim <= 128) return action(Tiles<4>{});
  if (dim <= 256) return action(Tiles<8>{});
  return action(Tiles<16>{});
}

inline unsigned grid_size(const char* kernel, index_t blocks) {
  if (blocks > std::numeric_limits<int>::max())
    throw UsageError(std::string(kernel) + ": " + std::to_string(blocks) +
                     " blocks of threads; a launch has at most 2147483647");
  return static_cast<unsigned>(blocks);
}

// `shared_floats` of dynamic shared memory a block; more than 48 KiB have to be asked for.
template <class Params>
void start(const char* name, void (*kernel)(Params), index_t blocks, int shared_floats, const Params& params,
           cudaStream_t stream) {
  const unsigned grid = grid_size(name, blocks);
  if (grid == 0) return;
  const int bytes = shared_floats * static_cast<int>(sizeof(float));
  constexpr int kAlwaysThere = 48 * 1024;
  if (bytes > kAlwaysThere)
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
               std::string(name) + ": " + std::to_string(bytes) + " bytes of shared memory");
  launch(kernel, dim3(grid), dim3(kThreads), static_cast<std::size_t>(bytes), stream, params);
  check_cuda(cudaGetLastError(), name);
}

}  // namespace ringattn::cuda
