#include "kernels/cuda/attend_launch.h"

namespace ringattn::cuda {
template void launch_attend_of<Bf16>(const AttendParams&, cudaStream_t);
}
