// Twin of kernels/cuda/ptx_wgmma.h, executed by the harness.
#pragma once
#include "tests/simt/wgmma.h"

namespace ringattn::ptx {

// On the GPU a pin only binds the compiler. Here it is where touching an accumulator too early gets noticed.
template <int N>
void pin(float (&r)[N], SIMT_WHERE) {
  simt::extension<simt::Wgmma>().check_untouched(simt::self(), r, where);
}
template <int N>
void pin(std::uint32_t (&)[N]) {}

inline void wgmma_fence() { simt::extension<simt::Wgmma>().fence(simt::self()); }
inline void wgmma_commit() { simt::extension<simt::Wgmma>().commit(simt::self()); }
template <int N>
void wgmma_wait(SIMT_WHERE) {
  simt::extension<simt::Wgmma>().wait(simt::self(), N, where);
}

// The shapes of the real header, so that a kernel which compiles here has its instruction.
constexpr bool has_wgmma_shape(int registers) {
  for (const int r : {16, 32, 40, 48, 64, 80, 88, 96, 128})
    if (r == registers) return true;
  return false;
}

template <class T, Major kMajorA, Major kMajorB, int kRegisters>
void wgmma_ss(float (&d)[kRegisters], std::uint64_t a, std::uint64_t b, bool accumulate, SIMT_WHERE) {
  static_assert(has_wgmma_shape(kRegisters));
  simt::extension<simt::Wgmma>().issue(simt::self(),
                                       {.element = simt::ElementOf<T>::value,
                                        .n = 2 * kRegisters,
                                        .d = d,
                                        .a_registers = nullptr,
                                        .a = a,
                                        .b = b,
                                        .a_major = static_cast<simt::Major>(kMajorA),
                                        .b_major = static_cast<simt::Major>(kMajorB),
                                        .accumulate = accumulate},
                                       where);
}
template <class T, Major kMajorB, int kRegisters>
void wgmma_rs(float (&d)[kRegisters], const std::uint32_t (&a)[4], std::uint64_t b, bool accumulate,
              SIMT_WHERE) {
  static_assert(has_wgmma_shape(kRegisters));
  simt::extension<simt::Wgmma>().issue(simt::self(),
                                       {.element = simt::ElementOf<T>::value,
                                        .n = 2 * kRegisters,
                                        .d = d,
                                        .a_registers = a,
                                        .a = 0,
                                        .b = b,
                                        .a_major = simt::Major::k,
                                        .b_major = static_cast<simt::Major>(kMajorB),
                                        .accumulate = accumulate},
                                       where);
}

}  // namespace ringattn::ptx
