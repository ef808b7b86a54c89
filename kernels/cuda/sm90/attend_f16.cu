#include "kernels/cuda/sm90/attend_launch.h"

namespace ringattn::cuda::sm90 {
template void launch_attend_of<__half>(const AttendParams&, cudaStream_t);
}
