#include "kernels/cuda/sm80/attend_launch.h"

namespace ringattn::cuda::sm80 {
template void launch_attend<Bf16>(const AttendParams&, cudaStream_t);
}
