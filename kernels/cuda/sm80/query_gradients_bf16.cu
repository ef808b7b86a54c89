#include "kernels/cuda/sm80/backward_launch.h"

namespace ringattn::cuda::sm80 {
template void launch_query_gradients<Bf16>(const BackwardParams&, cudaStream_t);
}
