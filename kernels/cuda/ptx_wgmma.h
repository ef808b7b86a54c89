// sm_90a: products of a warpgroup (128 threads) on operands in shared memory or registers. Part of ptx.h.
//
// The order is wgmma_fence, wgmma_ss or wgmma_rs any number of times, wgmma_commit, wgmma_wait. Between issue
// and wait the accumulators and A registers belong to the tensor core. asm order does not bind plain
// arithmetic on registers, so `pin` them after the wait (and before the fence): what uses them cannot slide
// across.
#pragma once
#include "kernels/cuda/ptx.h"

namespace ringattn::ptx {

// How a tile lies in shared memory, seen from the product: `k` has the summed index contiguous, `mn` the
// other one.
enum class Major : int { k = 0, mn = 1 };

// What a product needs to know of an operand tile in 128-byte swizzle, written by TMA with the same swizzle
// into a place aligned to 1024 bytes. Rows are 128 bytes (64 elements of 16 bits), 8 rows are one atom of
// 1024 bytes.
//   Major::k   rows are m or n, `stride_bytes` leads to the next 8 rows, `leading_bytes` is not used;
//              the next 16 of k are 32 bytes on
//   Major::mn  rows are k, `stride_bytes` leads to the next 8 rows, `leading_bytes` to the next 64 of m or n;
//              the next 16 of k are two atoms on
// PTX manual, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix Descriptor Format".
#ifdef __CUDACC__
__device__
#endif
    constexpr std::uint64_t
    matrix_descriptor(std::uint32_t address, std::uint32_t leading_bytes, std::uint32_t stride_bytes) {
  return std::uint64_t{(address & 0x3FFFFu) >> 4} | std::uint64_t{leading_bytes >> 4} << 16 |
         std::uint64_t{stride_bytes >> 4} << 32 | std::uint64_t{1} << 62;
}
// The address field counts 16-byte units, so an operand moves by an addition.
#ifdef __CUDACC__
__device__
#endif
    constexpr std::uint64_t
    advance_descriptor(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

}  // namespace ringattn::ptx

#ifdef RINGATTN_SIMT
#include <simt_ptx_wgmma.h>
#else

namespace ringattn::ptx {

// Binds the compiler: arithmetic on these registers stays on its side of the call. Costs nothing.
template <int N>
__device__ __forceinline__ void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int N>
__device__ __forceinline__ void pin(std::uint32_t (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+r"(r[i])::"memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most N committed groups are unfinished.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// One shape and type of the instruction; specialised below for the shapes in use.
template <int kRegisters, class T>
struct WgmmaShape;

// Operands: the accumulators come first, so what follows them is numbered from their count. SS: the two
// descriptors, the predicate, whether a and b are transposed (Major::mn). RS: four registers, one descriptor,
// predicate, transposition of b.
#define RINGATTN_ACC8(i)                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define RINGATTN_WGMMA(R, T, OP, P0, P1, P2, P3, P4, P5, P6)                                               \
  template <>                                                                                              \
  struct WgmmaShape<R, T> {                                                                                \
    template <int kTransA, int kTransB>                                                                    \
    static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,             \
                                              int accumulate) {                                            \
      asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " P2 ", 0;\n wgmma.mma_async.sync.aligned." OP      \
                   " {" RINGATTN_NAMES_##R "}, " P0 ", " P1 ", p, 1, 1, " P3 ", " P4 ";\n}"                \
                   : RINGATTN_ACC_##R                                                                      \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB));                         \
    }                                                                                                      \
    template <int kTransB>                                                                                 \
    static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t (&a)[4], std::uint64_t b, \
                                              int accumulate) {                                            \
      asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " P5 ", 0;\n wgmma.mma_async.sync.aligned." OP      \
                   " {" RINGATTN_NAMES_##R "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, " P6     \
                                           ";\n}"                                                          \
                   : RINGATTN_ACC_##R                                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB));   \
    }                                                                                                      \
  };
#define RINGATTN_WGMMA_TYPES(R, N, ...)                                        \
  RINGATTN_WGMMA(R, __nv_bfloat16, "m64n" #N "k16.f32.bf16.bf16", __VA_ARGS__) \
  RINGATTN_WGMMA(R, __half, "m64n" #N "k16.f32.f16.f16", __VA_ARGS__)

#define RINGATTN_NAMES_16   \
  "%0,%1,%2,%3,%4,%5,%6,%7" \
  ",%8,%9,%10,%11,%12,%13,%14,%15"
#define RINGATTN_ACC_16 RINGATTN_ACC8(0), RINGATTN_ACC8(8)
#define RINGATTN_NAMES_32            \
  "%0,%1,%2,%3,%4,%5,%6,%7"          \
  ",%8,%9,%10,%11,%12,%13,%14,%15"   \
  ",%16,%17,%18,%19,%20,%21,%22,%23" \
  ",%24,%25,%26,%27,%28,%29,%30,%31"
#define RINGATTN_ACC_32 RINGATTN_ACC8(0), RINGATTN_ACC8(8), RINGATTN_ACC8(16), RINGATTN_ACC8(24)
#define RINGATTN_NAMES_40 RINGATTN_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define RINGATTN_ACC_40 RINGATTN_ACC_32, RINGATTN_ACC8(32)
#define RINGATTN_NAMES_48 RINGATTN_NAMES_40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define RINGATTN_ACC_48 RINGATTN_ACC_40, RINGATTN_ACC8(40)
#define RINGATTN_NAMES_64            \
  RINGATTN_NAMES_48                  \
  ",%48,%49,%50,%51,%52,%53,%54,%55" \
  ",%56,%57,%58,%59,%60,%61,%62,%63"
#define RINGATTN_ACC_64 RINGATTN_ACC_48, RINGATTN_ACC8(48), RINGATTN_ACC8(56)
#define RINGATTN_NAMES_80            \
  RINGATTN_NAMES_64                  \
  ",%64,%65,%66,%67,%68,%69,%70,%71" \
  ",%72,%73,%74,%75,%76,%77,%78,%79"
#define RINGATTN_ACC_80 RINGATTN_ACC_64, RINGATTN_ACC8(64), RINGATTN_ACC8(72)
#define RINGATTN_NAMES_88 RINGATTN_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define RINGATTN_ACC_88 RINGATTN_ACC_80, RINGATTN_ACC8(80)
#define RINGATTN_NAMES_96 RINGATTN_NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define RINGATTN_ACC_96 RINGATTN_ACC_88, RINGATTN_ACC8(88)
#define RINGATTN_NAMES_128                   \
  RINGATTN_NAMES_96                          \
  ",%96,%97,%98,%99,%100,%101,%102,%103"     \
  ",%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119" \
  ",%120,%121,%122,%123,%124,%125,%126,%127"
#define RINGATTN_ACC_128 \
  RINGATTN_ACC_96, RINGATTN_ACC8(96), RINGATTN_ACC8(104), RINGATTN_ACC8(112), RINGATTN_ACC8(120)

RINGATTN_WGMMA_TYPES(16, 32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
RINGATTN_WGMMA_TYPES(32, 64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
RINGATTN_WGMMA_TYPES(40, 80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
RINGATTN_WGMMA_TYPES(48, 96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
RINGATTN_WGMMA_TYPES(64, 128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
RINGATTN_WGMMA_TYPES(80, 160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
RINGATTN_WGMMA_TYPES(88, 176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
RINGATTN_WGMMA_TYPES(96, 192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
RINGATTN_WGMMA_TYPES(128, 256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef RINGATTN_ACC8
#undef RINGATTN_WGMMA
#undef RINGATTN_WGMMA_TYPES
#undef RINGATTN_NAMES_16
#undef RINGATTN_ACC_16
#undef RINGATTN_NAMES_32
#undef RINGATTN_ACC_32
#undef RINGATTN_NAMES_40
#undef RINGATTN_ACC_40
#undef RINGATTN_NAMES_48
#undef RINGATTN_ACC_48
#undef RINGATTN_NAMES_64
#undef RINGATTN_ACC_64
#undef RINGATTN_NAMES_80
#undef RINGATTN_ACC_80
#undef RINGATTN_NAMES_88
#undef RINGATTN_ACC_88
#undef RINGATTN_NAMES_96
#undef RINGATTN_ACC_96
#undef RINGATTN_NAMES_128
#undef RINGATTN_ACC_128

// d (+)= a b^T in fp32; d is 64 x n with n = 2 * kRegisters (32, 64, 80, 96, 128, 160, 176, 192 or 256), a 64
// x 16, b n x 16; T is __nv_bfloat16 or __half; without `accumulate` the old d is not read. Thread t of the
// warpgroup, g = t % 32 / 4: d[i] is row t / 32 * 16 + g + 8 * (i / 2 % 2), column i / 4 * 8 + 2 * (t % 4) +
// i % 2. A registers lie as in mma_m16n8k16, 16 rows a warp.
template <class T, Major kMajorA, Major kMajorB, int kRegisters>
__device__ __forceinline__ void wgmma_ss(float (&d)[kRegisters], std::uint64_t a, std::uint64_t b,
                                         bool accumulate) {
  WgmmaShape<kRegisters, T>::template ss<static_cast<int>(kMajorA), static_cast<int>(kMajorB)>(d, a, b,
                                                                                               accumulate);
}
template <class T, Major kMajorB, int kRegisters>
__device__ __forceinline__ void wgmma_rs(float (&d)[kRegisters], const std::uint32_t (&a)[4], std::uint64_t b,
                                         bool accumulate) {
  WgmmaShape<kRegisters, T>::template rs<static_cast<int>(kMajorB)>(d, a, b, accumulate);
}

}  // namespace ringattn::ptx
#endif
