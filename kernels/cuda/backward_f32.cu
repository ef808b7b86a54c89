#include "kernels/cuda/backward_launch.h"

namespace ringattn::cuda {
template void launch_query_gradients_of<float>(const BackwardParams&, cudaStream_t);
template void launch_key_gradients_of<float>(const BackwardParams&, cudaStream_t);
}  // namespace ringattn::cuda
