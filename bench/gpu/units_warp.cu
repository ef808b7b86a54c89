// Instructions of a warp, sm_80 and later.
#include <algorithm>
#include <cmath>

#include "bench/gpu/unit_run.h"
#include "bench/gpu/units.h"

namespace ringattn::acceptance {
namespace {

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int sum = lane;
  for (int d = 16; d > 0; d /= 2) sum += ptx::shuffle_xor(sum, d);
  ptx::store_global(out + threadIdx.x, sum * 100 + ptx::shuffle(lane, 7));
}
std::string shuffles_reach_every_lane() {
  const Array<int> out(96);
  run_blocks(shuffles, 1, 96, 0, out.data());
  return differing("out", out.host(), std::vector<int>(96, 49607));  // 0 + ... + 31 = 496, and lane 7
}

// Copies kBytes of which the source holds the first source_bytes; lane by lane into a swizzled place.
template <int kBytes>
__global__ void copies(const unsigned char* in, unsigned char* out, int source_bytes) {
  const std::uint32_t to = ptx::shared_address(ptx::dynamic_shared()) + (threadIdx.x ^ 5) * 16;
  ptx::cp_async<kBytes>(to, in + threadIdx.x * 16, source_bytes);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (unsigned i = 0; i < kBytes; ++i)
    ptx::store_global(out + threadIdx.x * kBytes + i, ptx::load_shared<unsigned char>(to + i));
}
template <int kBytes>
std::string copies_fill_with_zeros() {
  std::vector<unsigned char> bytes(512);
  for (std::size_t i = 0; i < 512; ++i) bytes[i] = static_cast<unsigned char>(i % 251 + 1);
  const Array<unsigned char> in(bytes);
  for (const int source : {0, 1, kBytes - 1, kBytes}) {
    const Array<unsigned char> out(32 * kBytes);
    run_blocks(copies<kBytes>, 1, 32, 512, in.data(), out.data(), source);
    std::vector<unsigned char> want;
    for (std::size_t lane = 0; lane < 32; ++lane)
      for (std::size_t i = 0; i < kBytes; ++i)
        want.push_back(static_cast<int>(i) < source ? bytes[lane * 16 + i] : 0);
    if (const std::string wrong = differing("out", out.host(), want); !wrong.empty()) return wrong;
  }
  return "";
}

// Element (row, column) of matrix i is 64 i + 8 row + column.
__global__ void matrices(std::uint32_t* plain, std::uint32_t* transposed, std::uint32_t* two,
                         std::uint32_t* two_transposed) {
  auto* s = reinterpret_cast<std::uint16_t*>(ptx::dynamic_shared());
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) ptx::store_shared(s + i, static_cast<std::uint16_t>(i));
  __syncwarp();
  std::uint32_t r[4], r2[2];
  const std::uint32_t row = ptx::shared_address(s + lane * 8);
  ptx::ldmatrix_x4(r, row);
  for (unsigned i = 0; i < 4; ++i) ptx::store_global(plain + lane * 4 + i, r[i]);
  ptx::ldmatrix_x4_trans(r, row);
  for (unsigned i = 0; i < 4; ++i) ptx::store_global(transposed + lane * 4 + i, r[i]);
  ptx::ldmatrix_x2(r2, row);
  for (unsigned i = 0; i < 2; ++i) ptx::store_global(two + lane * 2 + i, r2[i]);
  ptx::ldmatrix_x2_trans(r2, row);
  for (unsigned i = 0; i < 2; ++i) ptx::store_global(two_transposed + lane * 2 + i, r2[i]);
}
std::string matrices_are_spread_over_lanes() {
  const Array<std::uint32_t> plain(128), transposed(128), two(64), two_transposed(64);
  run_blocks(matrices, 1, 32, 512, plain.data(), transposed.data(), two.data(), two_transposed.data());
  std::vector<std::uint32_t> rows, columns, rows_two, columns_two;
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t at = 64 * i + 8 * (lane / 4) + 2 * (lane % 4);
      const std::uint32_t across = 64 * i + 16 * (lane % 4) + lane / 4;
      rows.push_back(at | (at + 1) << 16);
      columns.push_back(across | (across + 8) << 16);
      if (i >= 2) continue;
      rows_two.push_back(rows.back());
      columns_two.push_back(columns.back());
    }
  return differing("x4", plain.host(), rows) + differing("x4.trans", transposed.host(), columns) +
         differing("x2", two.host(), rows_two) + differing("x2.trans", two_transposed.host(), columns_two);
}

// Small integers, exact in either format, that differ along rows and columns.
__host__ __device__ inline float a_at(unsigned row, unsigned k) {
  return static_cast<float>(static_cast<int>(row * 7 + k * 3) % 23 - 11);
}
__host__ __device__ inline float b_at(unsigned k, unsigned column) {
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
std::string mma_multiplies() {
  const Array<float> out(128);
  run_blocks(product<T>, 1, 32, 0, out.data());
  std::vector<float> want;
  for (unsigned row = 0; row < 16; ++row)
    for (unsigned column = 0; column < 8; ++column) {
      float sum = static_cast<float>(1000 * (1 + row / 8 * 2 + column % 2));
      for (unsigned k = 0; k < 16; ++k) sum += a_at(row, k) * b_at(k, column);
      want.push_back(sum);
    }
  return differing("product", out.host(), want);
}

__global__ void handed_over(int* out) {
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
std::string named_barrier_hands_over() {
  const Array<int> out(32);
  run_blocks(handed_over, 1, 64, 128, out.data());
  std::vector<int> want;
  for (int i = 0; i < 32; ++i) want.push_back(i);
  return differing("out", out.host(), want);
}

__global__ void powers(const float* x, float* out) {
  ptx::store_global(out + threadIdx.x, ptx::exp2_approx(ptx::load_global(x + threadIdx.x)));
}
// 2 ulp, 0 for -inf and below 2^-126, NaN kept.
std::string exp2_is_close() {
  std::vector<float> x{-INFINITY, -200, INFINITY, NAN, -126.5f, 0};
  while (x.size() < 1024) x.push_back(-125 + 250 * static_cast<float>(x.size() * 389 % 1021) / 1021);
  const Array<float> in(x), out(x.size());
  run_blocks(powers, 1, 1024, 0, in.data(), out.data());
  const std::vector<float> got = out.host();
  if (got[0] != 0 || got[1] != 0 || !std::isinf(got[2]) || !std::isnan(got[3]) || got[4] != 0 || got[5] != 1)
    return "2^x of -inf, -200, inf, NaN, -126.5, 0 is " + std::to_string(got[0]) + ", " +
           std::to_string(got[1]) + ", " + std::to_string(got[2]) + ", " + std::to_string(got[3]) + ", " +
           std::to_string(got[4]) + ", " + std::to_string(got[5]);
  for (std::size_t i = 6; i < x.size(); ++i) {
    const double want = std::exp2(static_cast<double>(x[i]));
    if (!(std::fabs(got[i] - want) <= 2.5 * 0x1p-23 * want))
      return "2^" + std::to_string(x[i]) + " is " + std::to_string(got[i]) + ", expected " +
             std::to_string(want);
  }
  return "";
}

__global__ void packing(std::uint32_t* out) {
  ptx::store_global(out, ptx::pack<__nv_bfloat16>(1.0f, -2.0f));
  ptx::store_global(out + 1, ptx::pack<__half>(1.0f, -2.0f));
  ptx::store_global(out + 2, ptx::pack<__nv_bfloat16>(1.00390625f, 1.01171875f));  // ties: down and up
  ptx::store_global(out + 3, ptx::pack<__half>(65520.0f, NAN));                    // overflow; the one NaN
}
std::string pack_rounds_to_even() {
  const Array<std::uint32_t> out(4);
  run_blocks(packing, 1, 1, 0, out.data());
  return differing("packed", out.host(),
                   std::vector<std::uint32_t>{0xC0003F80, 0xC0003C00, 0x3F823F80, 0x7FFF7C00});
}

}  // namespace

std::vector<Unit> warp_units() {
  constexpr int kLowest = 80, kHighest = 999;
  return {{"shuffles reach every lane", kLowest, kHighest, shuffles_reach_every_lane},
          {"cp.async of 4 bytes fills with zeros", kLowest, kHighest, copies_fill_with_zeros<4>},
          {"cp.async of 8 bytes fills with zeros", kLowest, kHighest, copies_fill_with_zeros<8>},
          {"cp.async of 16 bytes fills with zeros", kLowest, kHighest, copies_fill_with_zeros<16>},
          {"ldmatrix spreads matrices over lanes", kLowest, kHighest, matrices_are_spread_over_lanes},
          {"mma.sync multiplies bf16", kLowest, kHighest, mma_multiplies<__nv_bfloat16>},
          {"mma.sync multiplies f16", kLowest, kHighest, mma_multiplies<__half>},
          {"named barrier hands over", kLowest, kHighest, named_barrier_hands_over},
          {"ex2.approx is within 2 ulp", kLowest, kHighest, exp2_is_close},
          {"pack rounds to nearest even", kLowest, kHighest, pack_rounds_to_even}};
}

}  // namespace ringattn::acceptance
