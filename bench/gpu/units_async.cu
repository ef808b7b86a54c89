// sm_90's asynchronous units: stmatrix, mbarrier, TMA, bulk reductions, elect, register counts.
#include "bench/gpu/unit_run.h"
#include "bench/gpu/units.h"

namespace ringattn::acceptance {
namespace {

std::vector<std::uint16_t> numbered(std::size_t n) {
  std::vector<std::uint16_t> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<std::uint16_t>(i + 1);
  return v;
}

// Loads one box of 16 rows x 64 columns and stores it row by row, the swizzle undone.
__global__ void load_box(const __grid_constant__ CUtensorMap map, std::uint16_t* out, int y, int z, int w) {
#ifdef RINGATTN_UNITS_SM90
  unsigned char* const tile = swizzle_aligned_shared();
  auto* const barrier = reinterpret_cast<std::uint64_t*>(tile + 2048);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::tma_prefetch_map(&map);
    ptx::mbarrier_arrive_expect_tx(barrier, 2048);
    if (w < 0)
      ptx::tma_load(tile, &map, barrier, 0, y, z);
    else
      ptx::tma_load(tile, &map, barrier, 0, y, z, w);
  }
  ptx::mbarrier_wait(barrier, 0);
  const std::uint32_t base = ptx::shared_address(tile);
  for (unsigned i = threadIdx.x; i < 16 * 64; i += blockDim.x) {
    const unsigned row = i / 64, column = i % 64;
    const std::uint32_t place = base + row * 128 + ((column * 2) ^ (row % 8 * 16));
    ptx::store_global(out + i, ptx::load_shared<std::uint16_t>(place));
  }
#endif
}

std::string tma_clips_with_zeros_and_swizzles() {
  const Array<std::uint16_t> in(numbered(3 * 10 * 64));
  const CUtensorMap map = tensor_map(in.data(), {64, 10, 3}, std::array<cuuint32_t, 3>{64, 16, 1});
  for (const int y : {-3, 0, 7}) {
    const Array<std::uint16_t> out(16 * 64);
    run_blocks(load_box, 1, 64, 4096, map, out.data(), y, 2, -1);
    std::vector<std::uint16_t> want;
    for (int row = y; row < y + 16; ++row)
      for (int c = 0; c < 64; ++c)
        want.push_back(static_cast<std::uint16_t>(row >= 0 && row < 10 ? (2 * 10 + row) * 64 + c + 1 : 0));
    if (const std::string wrong = differing("tile", out.host(), want); !wrong.empty()) return wrong;
  }
  return "";
}

std::string tma_reads_four_dimensions() {  // [batch 2][row 5][head 3][64], head and row exchanged in the map
  const Array<std::uint16_t> in(numbered(2 * 5 * 3 * 64));
  const CUtensorMap map = tensor_map(in.data(), {64, 5, 3, 2}, {3 * 128, 128, 5 * 3 * 128}, {64, 16, 1, 1});
  const Array<std::uint16_t> out(16 * 64);
  run_blocks(load_box, 1, 32, 4096, map, out.data(), 1, 2, 1);
  std::vector<std::uint16_t> want;
  for (int row = 1; row < 17; ++row)
    for (int c = 0; c < 64; ++c)
      want.push_back(static_cast<std::uint16_t>(row < 5 ? ((5 + row) * 3 + 2) * 64 + c + 1 : 0));
  return differing("tile", out.host(), want);
}

// Rows of several heads follow one another, fewer of each than an atom of the swizzle has.
std::string tma_packs_rows_of_heads() {
  const Array<std::uint16_t> in(numbered(3 * 10 * 64));
  const CUtensorMap map = tensor_map(in.data(), {64, 10, 3}, std::array<cuuint32_t, 3>{64, 4, 4});
  for (const int y : {1, 8}) {
    const Array<std::uint16_t> out(16 * 64);
    run_blocks(load_box, 1, 64, 4096, map, out.data(), y, 1, -1);
    std::vector<std::uint16_t> want;
    for (int head = 1; head < 5; ++head)
      for (int row = y; row < y + 4; ++row)
        for (int c = 0; c < 64; ++c)
          want.push_back(
              static_cast<std::uint16_t>(head < 3 && row < 10 ? (head * 10 + row) * 64 + c + 1 : 0));
    if (const std::string wrong = differing("tile", out.host(), want); !wrong.empty()) return wrong;
  }
  return "";
}

// A ring of two slots that a producer warp fills and a consumer warp sums: five rounds, so both parities come
// twice.
constexpr unsigned kRounds = 5;
__global__ void ring(const __grid_constant__ CUtensorMap map, unsigned* sums) {
#ifdef RINGATTN_UNITS_SM90
  unsigned char* const tiles = swizzle_aligned_shared();
  auto* const full = reinterpret_cast<std::uint64_t*>(tiles + 4096);
  std::uint64_t* const empty = full + 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, 32);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned slot = round % 2, phase = round / 2 % 2;
    if (threadIdx.x < 32) {
      if (threadIdx.x != 0) continue;
      ptx::mbarrier_wait(empty + slot, phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(full + slot, 2048);
      ptx::tma_load(tiles + slot * 2048, &map, full + slot, 0, static_cast<int>(round * 16), 0);
    } else {
      ptx::mbarrier_wait(full + slot, phase);
      unsigned sum = 0;
      for (unsigned i = threadIdx.x - 32; i < 1024; i += 32)
        sum += ptx::load_shared<std::uint16_t>(ptx::shared_address(tiles) + slot * 2048 + i * 2);
      ptx::store_global(sums + round * 32 + threadIdx.x - 32, sum);
      ptx::mbarrier_arrive(empty + slot);
    }
  }
#endif
}
std::string ring_hands_over_every_tile() {
  const Array<std::uint16_t> in(numbered(kRounds * 16 * 64));
  const CUtensorMap map = tensor_map(in.data(), {64, kRounds * 16, 1}, std::array<cuuint32_t, 3>{64, 16, 1});
  const Array<unsigned> sums(kRounds * 32);
  run_blocks(ring, 1, 64, 6144, map, sums.data());
  const std::vector<unsigned> lanes = sums.host();
  std::vector<unsigned> got, want;
  for (unsigned round = 0; round < kRounds; ++round) {
    got.push_back(0);
    for (unsigned lane = 0; lane < 32; ++lane) got.back() += lanes[round * 32 + lane];
    want.push_back(round * 1024 * 1024 + 1024 * 1025 / 2);
  }
  return differing("sum of a round", got, want);
}

// Each block when those before it are done, as dq's parts are added.
__global__ void reduce_in_turn(float* out, int* done) {
#ifdef RINGATTN_UNITS_SM90
  auto* const s = reinterpret_cast<float*>(ptx::dynamic_shared());
  const float large = blockIdx.x == 0 ? 0x1p30f : -0x1p30f;
  ptx::store_shared(s + threadIdx.x, blockIdx.x < 2 ? large : static_cast<float>(threadIdx.x + blockIdx.x));
  ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::wait_global(done, static_cast<int>(blockIdx.x));
  ptx::fence_proxy_async_global();
  ptx::bulk_reduce_add(out, s, 64 * 4);
  ptx::bulk_commit();
  ptx::bulk_wait<0>();
  ptx::fence_global();
  ptx::atomic_add_global(done, 1);
#endif
}
// 2^30 takes what came before it away and what comes between it and -2^30, so that any other order shows.
std::string bulk_reductions_take_turns() {
  const Array<float> out(std::vector<float>(64, 0.5f));
  const Array<int> done(std::vector<int>(1, 0));
  run_blocks(reduce_in_turn, 4, 64, 256, out.data(), done.data());
  std::vector<float> want;
  for (int i = 0; i < 64; ++i) want.push_back(2 * static_cast<float>(i) + 5);
  return differing("sum", out.host(), want);
}

__global__ void elect(int* elected) {
#ifdef RINGATTN_UNITS_SM90
  if (ptx::elect_one()) ptx::atomic_add_global(elected, 1);
#endif
}
std::string elect_chooses_one_lane() {
  const Array<int> elected(std::vector<int>{0});
  run_blocks(elect, 1, 32, 0, elected.data());
  return differing("lanes elected", elected.host(), {1});
}

// Matrices stored the way ldmatrix reads them, as they are and transposed.
__global__ void stored_matrices(std::uint16_t* out) {
#ifdef RINGATTN_UNITS_SM90
  const std::uint32_t s = ptx::shared_address(ptx::dynamic_shared());
  const unsigned lane = threadIdx.x;
  std::uint32_t r[4];
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint32_t at = 64 * i + 8 * (lane / 4) + 2 * (lane % 4);
    r[i] = at | (at + 1) << 16;
  }
  ptx::stmatrix_x4(s + lane * 16, r);
  ptx::stmatrix_x4_trans(s + 512 + lane * 16, r);
  __syncwarp();
  for (unsigned i = lane; i < 512; i += 32)
    ptx::store_global(out + i, ptx::load_shared<std::uint16_t>(s + i * 2));
#endif
}
std::string stmatrix_is_the_way_back() {
  const Array<std::uint16_t> out(512);
  run_blocks(stored_matrices, 1, 32, 1024, out.data());
  std::vector<std::uint16_t> want;
  for (unsigned i = 0; i < 256; ++i) want.push_back(static_cast<std::uint16_t>(i));
  for (unsigned i = 0; i < 256; ++i)
    want.push_back(static_cast<std::uint16_t>(i / 64 * 64 + i % 8 * 8 + i / 8 % 8));
  return differing("stored", out.host(), want);
}

// Registers that a producer gives up are what the consumers go on with.
__global__ void __launch_bounds__(384, 1) registers(unsigned* out) {
#ifdef RINGATTN_UNITS_SM90
  if (threadIdx.x < 128)
    ptx::registers_release<24>();
  else
    ptx::registers_claim<240>();
  ptx::store_global(out + threadIdx.x, threadIdx.x);
#endif
}
std::string registers_move_between_warpgroups() {
  const Array<unsigned> out(384);
  run_blocks(registers, 1, 384, 0, out.data());
  std::vector<unsigned> want;
  for (unsigned i = 0; i < 384; ++i) want.push_back(i);
  return differing("out", out.host(), want);
}

}  // namespace

std::vector<Unit> async_units() {
  // Compiled for sm_90a, which is what has them all.
  constexpr int kOnly = 90;
  return {{"stmatrix is the way back of ldmatrix", kOnly, kOnly, stmatrix_is_the_way_back},
          {"TMA clips with zeros and swizzles", kOnly, kOnly, tma_clips_with_zeros_and_swizzles},
          {"TMA packs rows of heads", kOnly, kOnly, tma_packs_rows_of_heads},
          {"TMA reads four dimensions", kOnly, kOnly, tma_reads_four_dimensions},
          {"ring of two slots hands over every tile", kOnly, kOnly, ring_hands_over_every_tile},
          {"bulk reductions of several blocks take turns", kOnly, kOnly, bulk_reductions_take_turns},
          {"elect chooses one lane", kOnly, kOnly, elect_chooses_one_lane},
          {"registers move between warpgroups", kOnly, kOnly, registers_move_between_warpgroups}};
}

}  // namespace ringattn::acceptance
