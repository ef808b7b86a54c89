// Stand-in for cuda_runtime.h: the part of the language and of the runtime that the library
// uses. What is not here does not compile under the harness, on purpose.
#pragma once
#include <math.h>  // exp2f, fmaxf, ... in the global namespace, as in device code
#include <cstddef>
#include <cstdint>

#include <vector_types.h>
#include "tests/simt/runtime.h"
#include "tests/simt/warp.h"

#define __host__
#define __device__
#define __global__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__
// A host array cannot play __shared__ (one per block, guarded, poisoned):
// kernels ask ptx::dynamic_smem() instead.
#define __shared__ SIMT_use_ptx_dynamic_smem_instead_of___shared__

#define threadIdx (::simt::self().index)
#define blockIdx (::simt::self().block->index)
#define blockDim (::simt::self().block->dim)
#define gridDim (::simt::self().block->grid)
inline constexpr int warpSize = 32;

inline void __syncthreads(SIMT_WHERE) {
  simt::Thread& t = simt::self();
  t.block->barrier(t, 0, static_cast<unsigned>(t.block->threads.size()), true, where);
}
inline void __syncwarp(unsigned mask = ~0u, SIMT_WHERE) { simt::sync_warp(mask, where); }

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, SIMT_WHERE) {
  return simt::shuffle(__func__, mask, v, source, width, where,
                       [](int lane, int s, int w) { return (lane & ~(w - 1)) | (s & (w - 1)); });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32, SIMT_WHERE) {
  return simt::shuffle(__func__, mask, v, bits, width, where, [](int lane, int s, int w) {
    const int from = lane ^ s;
    return from / w > lane / w ? lane : from;
  });
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, int delta, int width = 32, SIMT_WHERE) {
  return simt::shuffle(__func__, mask, v, delta, width, where,
                       [](int lane, int s, int w) { return (lane & (w - 1)) + s < w ? lane + s : lane; });
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, int delta, int width = 32, SIMT_WHERE) {
  return simt::shuffle(__func__, mask, v, delta, width, where,
                       [](int lane, int s, int w) { return (lane & (w - 1)) >= s ? lane - s : lane; });
}
inline unsigned __ballot_sync(unsigned mask, int p, SIMT_WHERE) { return simt::ballot(mask, p != 0, where); }
inline int __any_sync(unsigned mask, int p, SIMT_WHERE) { return simt::ballot(mask, p != 0, where) != 0; }
inline int __all_sync(unsigned mask, int p, SIMT_WHERE) { return simt::ballot(mask, p != 0, where) == mask; }

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
