#include "kernels/cuda/sm90/backward_launch.h"

namespace ringattn::cuda::sm90 {
template void launch_gradients_of<__half>(const BackwardParams&, cudaStream_t);
}  // namespace ringattn::cuda::sm90
