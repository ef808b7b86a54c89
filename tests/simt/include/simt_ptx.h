// Twin of kernels/cuda/ptx.h: the same functions, executed by the harness. The extra default argument carries
// the kernel's line into every report.
#pragma once
#include <cmath>

#include "tests/simt/async_copy.h"
#include "tests/simt/global_access.h"
#include "tests/simt/mma.h"
#include "tests/simt/shared_access.h"
#include "tests/simt/warp.h"

namespace ringattn::ptx {

inline int thread_index() { return static_cast<int>(simt::self().linear); }

// ---------------------------------------------------------------- memory

inline unsigned char* dynamic_shared() { return simt::self().block->shared.data(); }
inline std::uint32_t shared_address(const void* p, SIMT_WHERE) {
  return simt::self().block->shared.address_of(p, where);
}
template <class T>
T load_global(const T* p, SIMT_WHERE) {
  return simt::load_global(p, where);
}
template <class T>
void store_global(T* p, T value, SIMT_WHERE) {
  simt::store_global(p, value, where);
}
template <class T>
T load_shared(const T* p, SIMT_WHERE) {
  return simt::load_shared<T>(shared_address(p, where), where);
}
template <class T>
void store_shared(T* p, T value, SIMT_WHERE) {
  simt::store_shared(shared_address(p, where), value, where);
}
template <class T>
T load_shared(std::uint32_t address, SIMT_WHERE) {
  return simt::load_shared<T>(address, where);
}
template <class T>
void store_shared(std::uint32_t address, T value, SIMT_WHERE) {
  simt::store_shared(address, value, where);
}
template <class T>
T atomic_add_global(T* p, T value, SIMT_WHERE) {
  return simt::atomic_add_global(p, value, where);
}

inline void fence_global() {
  simt::Thread& t = simt::self();
  t.block->fence(t);
}
inline void wait_global(const int* p, int value, SIMT_WHERE) { simt::wait_global(p, value, where); }

// ---------------------------------------------------------------- cp.async

template <int kBytes>
void cp_async(std::uint32_t to, const void* from, int source_bytes = kBytes, SIMT_WHERE) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  simt::Thread& t = simt::self();
  t.copies.issue(t, {to, from, kBytes, static_cast<std::uint32_t>(source_bytes), where});
}
inline void cp_async_commit() { simt::self().copies.commit(); }
template <int N>
void cp_async_wait() {
  simt::Thread& t = simt::self();
  t.copies.wait_group(t, N);
}

// ---------------------------------------------------------------- ldmatrix, stmatrix

inline void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address, SIMT_WHERE) {
  simt::ldmatrix(r, address, false, where);
}
inline void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address, SIMT_WHERE) {
  simt::ldmatrix(r, address, true, where);
}
inline void ldmatrix_x2(std::uint32_t (&r)[2], std::uint32_t address, SIMT_WHERE) {
  simt::ldmatrix(r, address, false, where);
}
inline void ldmatrix_x2_trans(std::uint32_t (&r)[2], std::uint32_t address, SIMT_WHERE) {
  simt::ldmatrix(r, address, true, where);
}
inline void stmatrix_x4(std::uint32_t address, const std::uint32_t (&r)[4], SIMT_WHERE) {
  simt::stmatrix_x4(address, r, false, where);
}
inline void stmatrix_x4_trans(std::uint32_t address, const std::uint32_t (&r)[4], SIMT_WHERE) {
  simt::stmatrix_x4(address, r, true, where);
}

// ---------------------------------------------------------------- mma.sync

template <class T>
void mma_m16n8k16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  SIMT_WHERE) {
  simt::mma_m16n8k16(simt::ElementOf<T>::value, d, a, b0, b1, where);
}

// ---------------------------------------------------------------- barriers, shuffles

inline void named_barrier_sync(int id, int threads, SIMT_WHERE) {
  simt::Thread& t = simt::self();
  t.block->barrier(t, static_cast<unsigned>(id), static_cast<unsigned>(threads), true, where);
}
inline void named_barrier_arrive(int id, int threads, SIMT_WHERE) {
  simt::Thread& t = simt::self();
  t.block->barrier(t, static_cast<unsigned>(id), static_cast<unsigned>(threads), false, where);
}
template <class T>
T shuffle_xor(T x, int bits, SIMT_WHERE) {
  return __shfl_xor_sync(~0u, x, bits, 32, where);
}
template <class T>
T shuffle(T x, int lane, SIMT_WHERE) {
  return __shfl_sync(~0u, x, lane, 32, where);
}

// ---------------------------------------------------------------- arithmetic

// The hardware's last two bits differ; no test may depend on them.
inline float exp2_approx(float x) {
  const float flushed = std::fpclassify(x) == FP_SUBNORMAL ? 0.0f : x;  // .ftz, in and out
  const float y = std::exp2(flushed);
  return std::fpclassify(y) == FP_SUBNORMAL ? 0.0f : y;
}
template <class T>
std::uint32_t pack(float low, float high) {
  return simt::pack(simt::ElementOf<T>::value, low, high);
}

}  // namespace ringattn::ptx
