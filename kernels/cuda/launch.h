// One spelling of a kernel launch for nvcc and for the test harness.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#ifdef RINGATTN_SIMT
#include <simt_launch.h>
#endif

namespace ringattn::cuda {

#ifdef RINGATTN_SIMT
using simt::launch;
#else
// kernel<<<grid, block, shared_bytes, stream>>>(args...). Errors of the launch are left to cudaGetLastError.
template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... args) {
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<P>(std::forward<A>(args))...);
}
#endif

}  // namespace ringattn::cuda
