// Every PTX instruction and every memory access of the CUDA kernels, one small wrapper each: no other file
// holds asm.
//
//   ptx.h        memory, cp.async, ldmatrix, mma.sync, barriers, shuffles, conversions   (sm_80 and later)
//   ptx_async.h  mbarrier, TMA, proxies, setmaxnreg                                      (sm_90)
//   ptx_wgmma.h  warpgroup matrix products                                               (sm_90a)
//
// The sources are compiled twice: by nvcc against this text, and by the host compiler (RINGATTN_SIMT is
// defined) against twins of the same names that a test harness executes and checks. Kernels therefore touch
// shared memory through these wrappers only, and global memory through load_global, store_global and the
// copies.
//
// asm is volatile and clobbers memory where order matters, so the compiler keeps wrappers in program order.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#ifdef RINGATTN_SIMT
#include <simt_ptx.h>
#else

namespace ringattn::ptx {

// threadIdx.x, read anew: what a kernel makes of it then takes no register from one turn of a loop to the
// next.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// ---------------------------------------------------------------- memory

// Base of the block's dynamic shared memory. CUDA promises 16-byte alignment, no more: tiles that are
// swizzled by 128 bytes need the address rounded up to 1024 (shared_address tells it).
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char ringattn_dynamic_shared[];
  return ringattn_dynamic_shared;
}

// The 32-bit number by which PTX and descriptors know a place in shared memory.
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// Plain accesses of 1 to 16 bytes, naturally aligned. They are wrappers so that the harness can check bounds,
// alignment and order.
template <class T>
__device__ __forceinline__ T load_global(const T* p) {
  return *p;
}
template <class T>
__device__ __forceinline__ void store_global(T* p, T value) {
  *p = value;
}
template <class T>
__device__ __forceinline__ T load_shared(const T* p) {
  return *p;
}
template <class T>
__device__ __forceinline__ void store_shared(T* p, T value) {
  *p = value;
}
// The same by address, for swizzled places.
template <class T>
__device__ __forceinline__ T load_shared(std::uint32_t address) {
  return *static_cast<const T*>(__cvta_shared_to_generic(address));
}
template <class T>
__device__ __forceinline__ void store_shared(std::uint32_t address, T value) {
  *static_cast<T*>(__cvta_shared_to_generic(address)) = value;
}
// Adds and returns what was there before; T is int, unsigned or float. Blocks may meet at *p through this
// call and wait_global alone.
template <class T>
__device__ __forceinline__ T atomic_add_global(T* p, T value) {
  return atomicAdd(p, value);
}

// Between blocks of one launch. What a thread did to global memory before fence_global is done for all who
// have come past wait_global because of what it then added to *p; __syncwarp carries either over to the
// warp's other lanes. A fence without the addition and an addition without the fence promise nothing.
__device__ __forceinline__ void fence_global() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Returns once *p is `value`. Whoever makes it so must not wait for this block, and must be sure to run.
__device__ __forceinline__ void wait_global(const int* p, int value) {
  constexpr unsigned kNanoseconds = 64;
  int now;
  while (true) {
    asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(p) : "memory");
    if (now == value) break;
    __nanosleep(kNanoseconds);
  }
  // Once, since acquiring empties L1.
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(p) : "memory");
}

// ---------------------------------------------------------------- cp.async

// kBytes (4, 8 or 16) from global to shared memory, both aligned to kBytes. Only the first source_bytes are
// read and the rest of the destination becomes zero; with source_bytes == 0 nothing is read, but the pointer
// must still be aligned. 16 bytes go past L1.
template <int kBytes>
__device__ __forceinline__ void cp_async(std::uint32_t to, const void* from, int source_bytes = kBytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(source_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(source_bytes)
                 : "memory");
  }
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most N of this thread's groups are in flight. What other threads copied needs a barrier
// after it.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---------------------------------------------------------------- ldmatrix, stmatrix

// 8x8 matrices of 16-bit elements. Lane l gives the 16-byte aligned address of row l % 8 of matrix l / 8 and
// receives in r[i] two neighbouring elements of row l / 4 of matrix i, columns 2 * (l % 4) and the next; with
// _trans of column l / 4. The x2 forms read the addresses of lanes 0-15.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t (&r)[2], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2_trans(std::uint32_t (&r)[2], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}
// The way back, sm_90: the same layout, stored.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// ---------------------------------------------------------------- mma.sync

// d += a b with fp32 sums: a is 16x16, b 16x8, d 16x8; T is __nv_bfloat16 or __half. Lane l, g = l / 4, p = 2
// * (l % 4): a[i] holds row g + 8 * (i % 2), columns p + 8 * (i / 2) and the next; b_i holds rows p + 8 * i
// and the next of column g; d[i] is row g + 8 * (i / 2), column p + i % 2. Two neighbouring d make one a: P
// needs no shuffle.
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                             std::uint32_t b1);
template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&d)[4], const std::uint32_t (&a)[4],
                                                            std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&d)[4], const std::uint32_t (&a)[4],
                                                     std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---------------------------------------------------------------- barriers, shuffles

// Barriers 1..15 among `threads` of the block (a multiple of 32); 0 is __syncthreads. arrive does not wait.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// All 32 lanes take part.
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int bits) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, bits);
}
template <class T>
__device__ __forceinline__ T shuffle(T x, int lane) {
  return __shfl_sync(0xFFFFFFFFu, x, lane);
}

// ---------------------------------------------------------------- arithmetic

// 2^x within 2 ulp; results below 2^-126 are 0, -inf gives 0, NaN stays NaN.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Two floats, each rounded to nearest even, as a pair of T: `low` in the low half (the lower column of a
// fragment).
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ __forceinline__ std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

}  // namespace ringattn::ptx
#endif

#include "kernels/cuda/ptx_async.h"
#include "kernels/cuda/ptx_wgmma.h"
