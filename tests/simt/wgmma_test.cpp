// wgmma by descriptor against plain loops, in every arrangement of its operands, and what must not be done
// around it.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/cuda/ptx.h"
#include "tests/simt/every_seed.h"
#include "tests/simt/run_kernel.h"
#include "tests/simt/tensor_map.h"

namespace ringattn {
namespace {

using ptx::Major;
using simt::DeviceArray, simt::FaultKind, simt::run_block;

constexpr int kDepth = 64;  // four steps of 16

enum class Fault {
  none,
  no_wait,
  no_fence,
  no_commit,
  no_swizzle_step,
  wrong_stride,
  early_write,
  early_read,
  operand_replaced,
  a_changed,
  threads_disagree,
  three_warps
};

__device__ unsigned char* aligned_shared() {
  unsigned char* const p = ptx::dynamic_shared();
  return p + (1024 - ptx::shared_address(p) % 1024) % 1024;
}

// D = A B^T, A [64][64] or [64 k][64] for mn, B [n][64] or [64 k][n]. Tiles are panels of 64 columns,
// [rows][64] each. The A registers, where they are used, come from `a_rows`, row-major.
template <class T, int kRegisters, bool kFromRegisters, Major kMajorA, Major kMajorB>
__global__ void product(const CUtensorMap map_a, const CUtensorMap map_b, const T* a_rows, float* out,
                        Fault fault) {
  constexpr unsigned kN = 2 * kRegisters;
  constexpr unsigned kPanelB = (kMajorB == Major::k ? kN : kDepth) * 128;
  constexpr unsigned kPanels = kMajorB == Major::k ? 1 : (kN + 63) / 64;
  const unsigned t = threadIdx.x;
  unsigned char* const tile_a = aligned_shared();
  unsigned char* const tile_b = tile_a + 8192;
  auto* const barrier = reinterpret_cast<std::uint64_t*>(tile_b + kPanels * kPanelB);
  if (t == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, 8192 + kPanels * kPanelB);
    ptx::tma_load(tile_a, &map_a, barrier, 0, 0, 0);
    for (unsigned p = 0; p < kPanels; ++p)
      ptx::tma_load(tile_b + p * kPanelB, &map_b, barrier, static_cast<int>(p * 64), 0, 0);
  }
  ptx::mbarrier_wait(barrier, 0);

  const unsigned row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
  std::uint32_t a[4][4];
  for (unsigned k = 0; k < 4; ++k)
    for (unsigned i = 0; i < 4; ++i) {
      const T* const p = a_rows + (row + i % 2 * 8) * kDepth + k * 16 + column + i / 2 * 8;
      a[k][i] = ptx::load_global(p).bits | std::uint32_t{ptx::load_global(p + 1).bits} << 16;
    }
  if (fault == Fault::three_warps && t >= 96) return;

  const std::uint32_t base_a = ptx::shared_address(tile_a), base_b = ptx::shared_address(tile_b);
  const std::uint32_t stride = fault == Fault::wrong_stride ? 512 : 1024;
  const std::uint32_t step_a = kMajorA == Major::k ? 32 : 2048, step_b = kMajorB == Major::k ? 32 : 2048;
  float d[kRegisters];
  for (float& x : d) x = 7;
  if (fault != Fault::no_fence) ptx::wgmma_fence();
  for (unsigned k = 0; k < 4; ++k) {
    const std::uint32_t off = fault == Fault::threads_disagree && t == 77 ? 32 : 0;
    const auto descriptor_a = ptx::matrix_descriptor(base_a, 8192, 1024);
    const auto descriptor_b = ptx::matrix_descriptor(base_b + off, kPanelB, stride);
    const std::uint32_t forward = fault == Fault::no_swizzle_step ? k * 16 : k * step_b;
    if constexpr (kFromRegisters)
      ptx::wgmma_rs<T, kMajorB>(d, a[k], ptx::advance_descriptor(descriptor_b, forward), k > 0);
    else
      ptx::wgmma_ss<T, kMajorA, kMajorB>(d, ptx::advance_descriptor(descriptor_a, k * step_a),
                                         ptx::advance_descriptor(descriptor_b, forward), k > 0);
  }
  if (fault != Fault::no_commit) ptx::wgmma_commit();
  if (fault == Fault::early_write) d[5] *= 0.5f;
  const float early = d[3];
  if (fault == Fault::operand_replaced) ptx::store_shared(base_b + t * 16, float4{0, 0, 0, 0});
  if (fault == Fault::a_changed) a[2][1] ^= 1;
  if (fault != Fault::no_wait) ptx::wgmma_wait<0>();
  ptx::pin(d);
  if (fault == Fault::early_read) d[3] = early;
  for (unsigned i = 0; i < kRegisters; ++i)
    ptx::store_global(out + (row + i / 2 % 2 * 8) * kN + i / 4 * 8 + column + i % 2, d[i]);
}

float element(__nv_bfloat16 x) { return __bfloat162float(x); }
float element(__half x) { return __half2float(x); }
void assign(__nv_bfloat16& x, float f) { x = __float2bfloat16(f); }
void assign(__half& x, float f) { x = __float2half(f); }

template <class T>
std::vector<T> integers(std::size_t n, std::size_t factor) {  // of -50 to 50, exact in either format
  std::vector<T> v(n);
  for (std::size_t i = 0; i < n; ++i)
    assign(v[i], static_cast<float>(static_cast<int>(i * factor % 101) - 50));
  return v;
}

// Sums of at most 64 products below 2500 are exact in fp32, whatever the order.
template <class T, int kRegisters, bool kFromRegisters, Major kMajorA, Major kMajorB>
void run_product(Fault fault) {
  constexpr std::size_t kN = 2 * kRegisters;
  const auto a = integers<T>(64 * kDepth, 37), b = integers<T>(kN * kDepth, 53);
  const bool mn_a = kMajorA == Major::mn, mn_b = kMajorB == Major::mn;
  std::vector<T> a_rows(a.size());
  const auto a_at = [&](std::size_t m, std::size_t k) { return mn_a ? a[k * 64 + m] : a[m * kDepth + k]; };
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t k = 0; k < kDepth; ++k) a_rows[m * kDepth + k] = a_at(m, k);
  const DeviceArray<T> device_a(a), device_b(b), device_rows(a_rows);
  const DeviceArray<float> out(64 * kN);
  const CUtensorMap map_a = simt::half_map(device_a.data(), {64, 64, 1}, {64, 64, 1});
  const CUtensorMap map_b =
      mn_b ? simt::half_map(device_b.data(), {kN, kDepth, 1}, {64, kDepth, 1})
           : simt::half_map(device_b.data(), {kDepth, kN, 1}, {64, static_cast<cuuint32_t>(kN), 1});
  run_block(product<T, kRegisters, kFromRegisters, kMajorA, kMajorB>, 128,
            8192 + (kN + 63) / 64 * 8192 + 2048, map_a, map_b, device_rows.data(), out.data(), fault);
  const auto got = out.host();
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t n = 0; n < kN; ++n) {
      float want = 0;
      for (std::size_t k = 0; k < kDepth; ++k)
        want += element(a_at(m, k)) * element(mn_b ? b[k * kN + n] : b[n * kDepth + k]);
      if (got[m * kN + n] != want)
        throw simt::Fault(simt::FaultKind::poison,
                          "wrong product at " + std::to_string(m) + "," + std::to_string(n));
    }
}

template <class T, int kRegisters>
void every_arrangement() {
  constexpr auto k = Major::k, mn = Major::mn;
  run_product<T, kRegisters, false, k, k>(Fault::none);
  run_product<T, kRegisters, false, k, mn>(Fault::none);
  run_product<T, kRegisters, false, mn, k>(Fault::none);
  run_product<T, kRegisters, false, mn, mn>(Fault::none);
  run_product<T, kRegisters, true, k, k>(Fault::none);
  run_product<T, kRegisters, true, k, mn>(Fault::none);
}

TEST(Wgmma, MultipliesInEveryArrangementOfItsOperands) {
  simt::in_every_seed([] { EXPECT_NO_THROW((every_arrangement<__nv_bfloat16, 64>())); });
}
TEST(Wgmma, MultipliesEveryShape) {
  EXPECT_NO_THROW((every_arrangement<__half, 16>()));
  EXPECT_NO_THROW((every_arrangement<__half, 32>()));
  EXPECT_NO_THROW((every_arrangement<__nv_bfloat16, 40>()));
  EXPECT_NO_THROW((every_arrangement<__half, 48>()));
  EXPECT_NO_THROW((every_arrangement<__half, 80>()));
  EXPECT_NO_THROW((every_arrangement<__nv_bfloat16, 88>()));
  EXPECT_NO_THROW((every_arrangement<__half, 96>()));
  EXPECT_NO_THROW((every_arrangement<__nv_bfloat16, 128>()));
}

void from_shared(Fault f) { run_product<__nv_bfloat16, 64, false, Major::k, Major::k>(f); }
void from_registers(Fault f) { run_product<__nv_bfloat16, 64, true, Major::k, Major::mn>(f); }

TEST(WgmmaFaults, NoWait) {
  simt::expect_fault(FaultKind::race, "nobody waited for", [] { from_shared(Fault::no_wait); });
}
TEST(WgmmaFaults, NoFence) {
  simt::expect_fault(FaultKind::usage, "without wgmma.fence", [] { from_shared(Fault::no_fence); });
}
TEST(WgmmaFaults, NoCommit) {
  simt::expect_fault(FaultKind::race, "nobody waited for", [] { from_shared(Fault::no_commit); });
}
TEST(WgmmaFaults, SwizzledRowSteppedByTheWrongAmount) {
  simt::expect_fault(FaultKind::poison, "wrong product", [] { from_shared(Fault::no_swizzle_step); });
}
TEST(WgmmaFaults, WrongStrideInTheDescriptor) {
  simt::expect_fault(FaultKind::poison, "wrong product", [] { from_shared(Fault::wrong_stride); });
}
TEST(WgmmaFaults, WritingAnAccumulatorInFlight) {
  simt::expect_fault(FaultKind::race, "accumulator register 5", [] { from_shared(Fault::early_write); });
}
TEST(WgmmaFaults, ReadingAnAccumulatorInFlight) {
  simt::expect_fault(FaultKind::poison, "wrong product", [] { from_shared(Fault::early_read); });
}
TEST(WgmmaFaults, ReplacingAnOperandInFlight) {
  simt::expect_fault(FaultKind::race, "shared", [] { from_shared(Fault::operand_replaced); });
}
TEST(WgmmaFaults, ChangingARegistersInFlight) {
  simt::expect_fault(FaultKind::race, "A registers changed", [] { from_registers(Fault::a_changed); });
}
TEST(WgmmaFaults, ThreadsWithDifferentDescriptors) {
  simt::expect_fault(FaultKind::divergence, "different wgmma", [] { from_shared(Fault::threads_disagree); });
}
TEST(WgmmaFaults, OneWarpMissing) {
  simt::expect_fault(FaultKind::deadlock, "other warps of the warpgroup",
                     [] { from_shared(Fault::three_warps); });
}

// A tile that threads wrote by ordinary stores.
__global__ void stored_tile(bool fence, bool fence_after) {
  unsigned char* const tile = aligned_shared();
  for (unsigned i = threadIdx.x; i < (8192 + 8192) / 4; i += 128)
    ptx::store_shared(ptx::shared_address(tile) + i * 4, 0x3F803F80u);
  if (fence) ptx::fence_proxy_async();
  __syncthreads();
  if (fence_after) ptx::fence_proxy_async();
  float d[32];
  ptx::wgmma_fence();
  ptx::wgmma_ss<__nv_bfloat16, Major::k, Major::k>(
      d, ptx::matrix_descriptor(ptx::shared_address(tile), 16, 1024),
      ptx::matrix_descriptor(ptx::shared_address(tile) + 8192, 16, 1024), false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (const float x : d)
    if (x != 16) throw simt::Fault(FaultKind::poison, "wrong product");
}
TEST(WgmmaFaults, StoredOperandWithoutAProxyFence) {
  simt::in_every_seed([] {
    EXPECT_NO_THROW(run_block(stored_tile, 128, 18432, true, false));
    EXPECT_NO_THROW(run_block(stored_tile, 128, 18432, false, true));
  });
  simt::expect_fault(FaultKind::race, "fence.proxy.async",
                     [] { run_block(stored_tile, 128, 18432, false, false); });
}

}  // namespace
}  // namespace ringattn
