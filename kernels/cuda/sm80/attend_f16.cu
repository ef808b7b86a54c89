#include "kernels/cuda/sm80/attend_launch.h"

namespace ringattn::cuda::sm80 {
template void launch_attend<F16>(const AttendParams&, cudaStream_t);
}
