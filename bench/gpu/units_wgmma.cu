// Products of a warpgroup by descriptor, in every shape and arrangement of operands that the kernels use.
#include "bench/gpu/unit_run.h"
#include "bench/gpu/units.h"

namespace ringattn::acceptance {
namespace {

using ptx::Major;

constexpr int kDepth = 64;  // four steps of 16
// Shared bytes of a panel of 64 columns and up to 64 rows.
constexpr unsigned kPanel = 8192;

// D = A B^T, A [64][64] or [64 k][64] for mn, B [n][64] or [64 k][n]. Tiles are panels of 64 columns,
// [rows][64] each, as TMA writes them. The A registers, where they are used, come from `a_rows`, row-major.
template <class T, int kRegisters, bool kFromRegisters, Major kMajorA, Major kMajorB>
__global__ void __launch_bounds__(128, 1)
    product(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
            const std::uint16_t* a_rows, float* out) {
#ifdef RINGATTN_UNITS_SM90
  constexpr unsigned kN = 2 * kRegisters;
  constexpr unsigned kPanelB = (kMajorB == Major::k ? kN : kDepth) * 128;
  constexpr unsigned kPanels = kMajorB == Major::k ? 1 : (kN + 63) / 64;
  const unsigned t = threadIdx.x;
  unsigned char* const tile_a = swizzle_aligned_shared();
  unsigned char* const tile_b = tile_a + kPanel;
  auto* const barrier = reinterpret_cast<std::uint64_t*>(tile_b + kPanels * kPanelB);
  if (t == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (t == 0) {
    ptx::mbarrier_arrive_expect_tx(barrier, kPanel + kPanels * kPanelB);
    ptx::tma_load(tile_a, &map_a, barrier, 0, 0, 0);
    for (unsigned p = 0; p < kPanels; ++p)
      ptx::tma_load(tile_b + p * kPanelB, &map_b, barrier, static_cast<int>(p * 64), 0, 0);
  }
  ptx::mbarrier_wait(barrier, 0);

  const unsigned row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
  std::uint32_t a[4][4];
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint16_t* const p = a_rows + (row + i % 2 * 8) * kDepth + k * 16 + column + i / 2 * 8;
      a[k][i] = std::uint32_t{ptx::load_global(p)} | std::uint32_t{ptx::load_global(p + 1)} << 16;
    }
  const std::uint32_t base_a = ptx::shared_address(tile_a), base_b = ptx::shared_address(tile_b);
  const std::uint32_t step_a = kMajorA == Major::k ? 32 : 2048, step_b = kMajorB == Major::k ? 32 : 2048;
  float d[kRegisters];
#pragma unroll
  for (int i = 0; i < kRegisters; ++i) d[i] = 7;  // the first product must not read it
  ptx::pin(d);
  ptx::wgmma_fence();
#pragma unroll
  for (unsigned k = 0; k < 4; ++k) {
    const auto b = ptx::advance_descriptor(ptx::matrix_descriptor(base_b, kPanelB, 1024), k * step_b);
    if constexpr (kFromRegisters)
      ptx::wgmma_rs<T, kMajorB>(d, a[k], b, k > 0);
    else
      ptx::wgmma_ss<T, kMajorA, kMajorB>(
          d, ptx::advance_descriptor(ptx::matrix_descriptor(base_a, kPanel, 1024), k * step_a), b, k > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::pin(d);
#pragma unroll
  for (unsigned i = 0; i < kRegisters; ++i)
    ptx::store_global(out + (row + i / 2 % 2 * 8) * kN + i / 4 * 8 + column + i % 2, d[i]);
#endif
}

// Integers of -50 to 50, exact in either format, and their bits.
int integer(std::size_t i, std::size_t factor) { return static_cast<int>(i * factor % 101) - 50; }
std::uint16_t bits(__nv_bfloat16, int value) {
  const __nv_bfloat16 x = __float2bfloat16(static_cast<float>(value));
  std::uint16_t b = 0;
  std::memcpy(&b, &x, sizeof b);
  return b;
}
std::uint16_t bits(__half, int value) {
  const __half x = __float2half(static_cast<float>(value));
  std::uint16_t b = 0;
  std::memcpy(&b, &x, sizeof b);
  return b;
}
template <class T>
std::vector<std::uint16_t> all_bits(std::size_t n, std::size_t factor) {
  std::vector<std::uint16_t> v;
  for (std::size_t i = 0; i < n; ++i) v.push_back(bits(T{}, integer(i, factor)));
  return v;
}

// Sums of 64 products below 2500 are exact in fp32, whatever the order.
template <class T, int kRegisters, bool kFromRegisters, Major kMajorA, Major kMajorB>
std::string multiplies() {
  constexpr std::size_t kN = 2 * kRegisters, kA = 37, kB = 53;
  const bool mn_a = kMajorA == Major::mn, mn_b = kMajorB == Major::mn;
  const auto a_at = [&](std::size_t m, std::size_t k) { return mn_a ? k * 64 + m : m * kDepth + k; };
  const auto b_at = [&](std::size_t n, std::size_t k) { return mn_b ? k * kN + n : n * kDepth + k; };
  std::vector<std::uint16_t> a_rows;
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t k = 0; k < kDepth; ++k) a_rows.push_back(bits(T{}, integer(a_at(m, k), kA)));
  const Array<std::uint16_t> a(all_bits<T>(64 * kDepth, kA)), b(all_bits<T>(kN * kDepth, kB)), rows(a_rows);
  const Array<float> out(64 * kN);
  const CUtensorMap map_a = tensor_map(a.data(), {64, 64, 1}, std::array<cuuint32_t, 3>{64, 64, 1});
  const CUtensorMap map_b =
      mn_b ? tensor_map(b.data(), {kN, kDepth, 1}, std::array<cuuint32_t, 3>{64, kDepth, 1})
           : tensor_map(b.data(), {kDepth, kN, 1},
                        std::array<cuuint32_t, 3>{kDepth, static_cast<cuuint32_t>(kN), 1});
  run_blocks(product<T, kRegisters, kFromRegisters, kMajorA, kMajorB>, 1, 128,
             kPanel + (kN + 63) / 64 * kPanel + 2048, map_a, map_b,
             static_cast<const std::uint16_t*>(rows.data()), out.data());
  std::vector<float> want;
  for (std::size_t m = 0; m < 64; ++m)
    for (std::size_t n = 0; n < kN; ++n) {
      int sum = 0;
      for (std::size_t k = 0; k < kDepth; ++k) sum += integer(a_at(m, k), kA) * integer(b_at(n, k), kB);
      want.push_back(static_cast<float>(sum));
    }
  return differing("product", out.host(), want);
}

template <class T, int kRegisters>
void add_shape(std::vector<Unit>& units, const std::string& type) {
  constexpr auto k = Major::k, mn = Major::mn;
  constexpr int kOnly = 90;
  const std::string name = "wgmma m64n" + std::to_string(2 * kRegisters) + "k16 " + type + ", ";
  units.push_back({name + "A k, B k", kOnly, kOnly, multiplies<T, kRegisters, false, k, k>});
  units.push_back({name + "A k, B mn", kOnly, kOnly, multiplies<T, kRegisters, false, k, mn>});
  units.push_back({name + "A mn, B k", kOnly, kOnly, multiplies<T, kRegisters, false, mn, k>});
  units.push_back({name + "A mn, B mn", kOnly, kOnly, multiplies<T, kRegisters, false, mn, mn>});
  units.push_back({name + "A registers, B k", kOnly, kOnly, multiplies<T, kRegisters, true, k, k>});
  units.push_back({name + "A registers, B mn", kOnly, kOnly, multiplies<T, kRegisters, true, k, mn>});
}

}  // namespace

// f16 differs from bf16 by the type in the instruction alone: two shapes of it.
std::vector<Unit> wgmma_units() {
  std::vector<Unit> units;
  add_shape<__nv_bfloat16, 32>(units, "bf16");
  add_shape<__nv_bfloat16, 40>(units, "bf16");
  add_shape<__nv_bfloat16, 48>(units, "bf16");
  add_shape<__nv_bfloat16, 64>(units, "bf16");
  add_shape<__nv_bfloat16, 80>(units, "bf16");
  add_shape<__nv_bfloat16, 88>(units, "bf16");
  add_shape<__nv_bfloat16, 96>(units, "bf16");
  add_shape<__nv_bfloat16, 128>(units, "bf16");
  add_shape<__half, 32>(units, "f16");
  add_shape<__half, 64>(units, "f16");
  return units;
}

}  // namespace ringattn::acceptance
