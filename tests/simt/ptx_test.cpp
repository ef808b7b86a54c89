// Instructions of ptx.h against a plain description of what they do, under every seed.
#include "kernels/cuda/ptx.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/simt/every_seed.h"
#include "tests/simt/run_kernel.h"

namespace ringattn {
namespace {

using simt::DeviceArray, simt::run_block;

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int sum = lane;
  for (int d = 16; d > 0; d /= 2) sum += ptx::shuffle_xor(sum, d);
  ptx::store_global(out + threadIdx.x, sum * 100 + ptx::shuffle(lane, 7));
}
TEST(Ptx, ShufflesReachEveryLaneOfTheirWarp) {
  simt::in_every_seed([] {
    const DeviceArray<int> out(96);
    run_block(shuffles, 96, 0, out.data());
    for (const int x : out.host()) EXPECT_EQ(x, 49607);  // 0 + ... + 31 = 496
  });
}

// Three groups of one copy each; after wait<1> the first two are there and the third is still in flight.
__global__ void copy_groups(const float4* in, float* out) {
  auto* s = reinterpret_cast<float4*>(ptx::dynamic_shared());
  const unsigned t = threadIdx.x;
  for (unsigned g = 0; g < 3; ++g) {
    ptx::cp_async<16>(ptx::shared_address(s + t * 3 + g), in + g);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<1>();
  for (unsigned g = 0; g < 3; ++g) ptx::store_global(out + t * 3 + g, ptx::load_shared(s + t * 3 + g).x);
  ptx::cp_async_wait<0>();
}
TEST(Ptx, CopiesOfAGroupLandAtTheWaitAndNotBefore) {
  simt::in_every_seed([] {
    const DeviceArray<float4> in(std::vector<float4>{{1, 0, 0, 0}, {2, 0, 0, 0}, {3, 0, 0, 0}});
    const DeviceArray<float> out(96);
    run_block(copy_groups, 32, 32 * 3 * 16, in.data(), out.data());
    const std::vector<float> got = out.host();
    for (std::size_t i = 0; i < 96; i += 3) {
      EXPECT_EQ(got[i], 1);
      EXPECT_EQ(got[i + 1], 2);
      EXPECT_TRUE(std::isnan(got[i + 2]));
    }
  });
}

template <int kBytes>
__global__ void copy_part(const unsigned char* in, unsigned char* out, int source_bytes) {
  auto* s = ptx::dynamic_shared();
  ptx::cp_async<kBytes>(ptx::shared_address(s), in, source_bytes);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < kBytes; ++i) ptx::store_global(out + i, ptx::load_shared(s + i));
}
TEST(Ptx, CopyFillsWithZerosWhatTheSourceDoesNotHold) {
  std::vector<unsigned char> bytes(16);
  for (std::size_t i = 0; i < 16; ++i) bytes[i] = static_cast<unsigned char>(i + 1);
  const DeviceArray<unsigned char> in(bytes), out(16);
  const auto check = [&](auto kernel, int size) {
    for (int source = 0; source <= size; ++source) {
      run_block(kernel, 1, 16, in.data(), out.data(), source);
      for (int i = 0; i < size; ++i)
        EXPECT_EQ(out.host()[static_cast<std::size_t>(i)], i < source ? i + 1 : 0);
    }
  };
  check(copy_part<4>, 4);
  check(copy_part<8>, 8);
  check(copy_part<16>, 16);
}

// Element (row, column) of matrix i is 64 i + 8 row + column.
__global__ void matrices(std::uint32_t* x4, std::uint32_t* x4_trans, std::uint32_t* x2,
                         std::uint32_t* x2_trans, std::uint16_t* stored) {
  auto* s = reinterpret_cast<std::uint16_t*>(ptx::dynamic_shared());
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) ptx::store_shared(s + i, static_cast<std::uint16_t>(i));
  __syncwarp();
  std::uint32_t r4[4], r2[2];
  const std::uint32_t row = ptx::shared_address(s + lane * 8);
  ptx::ldmatrix_x4(r4, row);
  for (unsigned i = 0; i < 4; ++i) ptx::store_global(x4 + lane * 4 + i, r4[i]);
  ptx::ldmatrix_x2(r2, row);
  for (unsigned i = 0; i < 2; ++i) ptx::store_global(x2 + lane * 2 + i, r2[i]);
  ptx::ldmatrix_x2_trans(r2, row);
  for (unsigned i = 0; i < 2; ++i) ptx::store_global(x2_trans + lane * 2 + i, r2[i]);
  ptx::ldmatrix_x4_trans(r4, row);
  for (unsigned i = 0; i < 4; ++i) ptx::store_global(x4_trans + lane * 4 + i, r4[i]);
  ptx::stmatrix_x4(row + 512, r4);         // the transposed matrices
  ptx::stmatrix_x4_trans(row + 1024, r4);  // and back
  __syncwarp();
  for (unsigned i = lane; i < 512; i += 32) ptx::store_global(stored + i, ptx::load_shared(s + 256 + i));
}
TEST(Ptx, MatricesAreSpreadOverTheLanesAsTheManualSays) {
  const auto pair = [](unsigned low, unsigned high) { return low | high << 16; };
  simt::in_every_seed([&] {
    const DeviceArray<std::uint32_t> x4(128), x4_trans(128), x2(64), x2_trans(64);
    const DeviceArray<std::uint16_t> stored(512);
    run_block(matrices, 32, 1536, x4.data(), x4_trans.data(), x2.data(), x2_trans.data(), stored.data());
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned at = 64 * i + 8 * (lane / 4) + 2 * (lane % 4),
                       across = 64 * i + 16 * (lane % 4) + lane / 4;
        EXPECT_EQ(x4.host()[lane * 4 + i], pair(at, at + 1));
        EXPECT_EQ(x4_trans.host()[lane * 4 + i], pair(across, across + 8));
        if (i >= 2) continue;
        EXPECT_EQ(x2.host()[lane * 2 + i], pair(at, at + 1));
        EXPECT_EQ(x2_trans.host()[lane * 2 + i], pair(across, across + 8));
      }
    const auto got = stored.host();
    for (unsigned i = 0; i < 256; ++i) {
      EXPECT_EQ(got[i], i / 64 * 64 + i % 8 * 8 + i / 8 % 8);
      EXPECT_EQ(got[256 + i], i);
    }
  });
}

// Small odd integers, exact in either format, that differ along rows and columns.
float a_at(unsigned row, unsigned k) {
  return static_cast<float>(static_cast<int>(row * 7 + k * 3) % 23 - 11);
}
float b_at(unsigned k, unsigned column) {
  return static_cast<float>(static_cast<int>(k * 5 + column * 11) % 19 - 9);
}

template <class T>
__global__ void product(float* out) {
  const unsigned lane = threadIdx.x, g = lane / 4, p = lane % 4 * 2;
  std::uint32_t a[4], b[2];
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i % 2 * 8, k = p + i / 2 * 8;
    a[i] = ptx::pack<T>(a_at(row, k), a_at(row, k + 1));
  }
  for (unsigned i = 0; i < 2; ++i) b[i] = ptx::pack<T>(b_at(p + i * 8, g), b_at(p + i * 8 + 1, g));
  float d[4] = {1000, 2000, 3000, 4000};
  ptx::mma_m16n8k16<T>(d, a, b[0], b[1]);
  for (unsigned i = 0; i < 4; ++i) ptx::store_global(out + (g + i / 2 * 8) * 8 + p + i % 2, d[i]);
}
template <class T>
void check_product() {
  simt::in_every_seed([] {
    const DeviceArray<float> out(128);
    run_block(product<T>, 32, 0, out.data());
    for (unsigned row = 0; row < 16; ++row)
      for (unsigned column = 0; column < 8; ++column) {
        float want = static_cast<float>(1000 * (1 + row / 8 * 2 + column % 2));
        for (unsigned k = 0; k < 16; ++k) want += a_at(row, k) * b_at(k, column);
        EXPECT_EQ(out.host()[row * 8 + column], want) << row << "," << column;
      }
  });
}
TEST(Ptx, MmaMultipliesBf16) { check_product<__nv_bfloat16>(); }
TEST(Ptx, MmaMultipliesF16) { check_product<__half>(); }

__global__ void producer_consumer(int* out) {
  auto* s = reinterpret_cast<int*>(ptx::dynamic_shared());
  const unsigned t = threadIdx.x;
  if (t < 32) {
    ptx::store_shared(s + t, static_cast<int>(t));
    ptx::named_barrier_arrive(1, 64);
  } else {
    ptx::named_barrier_sync(1, 64);
    ptx::store_global(out + t - 32, ptx::load_shared(s + t - 32));
  }
}
TEST(Ptx, NamedBarrierHandsOverFromArrivalsToWaiters) {
  simt::in_every_seed([] {
    const DeviceArray<int> out(32);
    run_block(producer_consumer, 64, 128, out.data());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(out.host()[static_cast<std::size_t>(i)], i);
  });
}

__global__ void arithmetic(float* out) {
  const float inf = std::numeric_limits<float>::infinity();
  const float x[] = {0, -inf, -200, 3.5f, inf, std::nanf("")};
  for (int i = 0; i < 6; ++i) ptx::store_global(out + i, ptx::exp2_approx(x[i]));
}
TEST(Ptx, Exp2KeepsNanAndTakesMinusInfinityToZero) {
  const DeviceArray<float> out(6);
  run_block(arithmetic, 1, 0, out.data());
  const auto got = out.host();
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], 0);
  EXPECT_EQ(got[2], 0);
  EXPECT_NEAR(got[3], 11.3137085, 1e-5);
  EXPECT_TRUE(std::isinf(got[4]));
  EXPECT_TRUE(std::isnan(got[5]));
}

__global__ void packing(std::uint32_t* out) {
  ptx::store_global(out, ptx::pack<__nv_bfloat16>(1.0f, -2.0f));
  ptx::store_global(out + 1, ptx::pack<__half>(1.0f, -2.0f));
  ptx::store_global(out + 2,
                    ptx::pack<__nv_bfloat16>(1.00390625f, 1.01171875f));   // ties, to even: down and up
  ptx::store_global(out + 3, ptx::pack<__half>(65520.0f, std::nanf("")));  // overflows; the canonical NaN
}
TEST(Ptx, PackRoundsToEvenWithTheFirstValueInTheLowHalf) {
  const DeviceArray<std::uint32_t> out(4);
  run_block(packing, 1, 0, out.data());
  EXPECT_EQ(out.host(), (std::vector<std::uint32_t>{0xC0003F80, 0xC0003C00, 0x3F823F80, 0x7FFF7C00}));
}

__global__ void count_up(int* counter, int* seen) {
  const int before = ptx::atomic_add_global(counter, 1);
  ptx::store_global(seen + before, static_cast<int>(blockIdx.x));
}
TEST(Ptx, AtomicAddHandsOutEveryNumberOnceAcrossBlocks) {
  simt::in_every_seed([] {
    const DeviceArray<int> counter(std::vector<int>{0}), seen(7);
    const simt::StreamOwner stream;
    simt::launch(count_up, dim3(7), dim3(1), 0, stream, counter.data(), seen.data());
    cudaStreamSynchronize(stream);
    std::vector<int> got = seen.host();
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
  });
}

}  // namespace
}  // namespace ringattn
