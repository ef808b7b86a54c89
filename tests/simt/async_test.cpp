// sm_90's asynchronous units: mbarrier, TMA, bulk reductions, elect, register counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/ptx.h"
#include "tests/simt/every_seed.h"
#include "tests/simt/run_kernel.h"
#include "tests/simt/tensor_map.h"

namespace ringattn {
namespace {

using simt::DeviceArray, simt::FaultKind, simt::run_block;

__device__ unsigned char* aligned_shared() {
  unsigned char* const p = ptx::dynamic_shared();
  return p + (1024 - ptx::shared_address(p) % 1024) % 1024;
}

std::vector<__half> numbered(std::size_t n) {
  std::vector<__half> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i].bits = static_cast<std::uint16_t>(i + 1);
  return v;
}

// Loads one box of 16 rows x 64 columns and stores it row by row, the swizzle undone.
__global__ void load_box(const CUtensorMap map, std::uint16_t* out, int y, int z, int w) {
  unsigned char* const tile = aligned_shared();
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
}

TEST(Async, TmaClipsWithZerosAndSwizzles) {
  const DeviceArray<__half> in(numbered(3 * 10 * 64));
  const CUtensorMap map = simt::half_map(in.data(), {64, 10, 3}, {64, 16, 1});
  for (const int y : {-3, 0, 7})
    simt::in_every_seed([&] {
      const DeviceArray<std::uint16_t> out(16 * 64);
      run_block(load_box, 64, 4096, map, out.data(), y, 2, -1);
      const auto got = out.host();
      for (int row = 0; row < 16; ++row)
        for (int c = 0; c < 64; ++c) {
          const int from = row + y;
          const int want = from >= 0 && from < 10 ? (2 * 10 + from) * 64 + c + 1 : 0;
          EXPECT_EQ(got[static_cast<std::size_t>(row * 64 + c)], want) << row << "," << c;
        }
    });
}

TEST(Async, TmaReadsFourDimensions) {  // [batch 2][row 5][head 3][64], head and row exchanged in the map
  const DeviceArray<__half> in(numbered(2 * 5 * 3 * 64));
  CUtensorMap map;
  const cuuint64_t dims[] = {64, 5, 3, 2}, strides[] = {3 * 128, 128, 5 * 3 * 128};
  const cuuint32_t box[] = {64, 16, 1, 1}, steps[] = {1, 1, 1, 1};
  ASSERT_EQ(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, in.data(), dims, strides, box,
                                   steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS);
  const DeviceArray<std::uint16_t> out(16 * 64);
  run_block(load_box, 32, 4096, map, out.data(), 1, 2, 1);
  const auto got = out.host();
  for (int row = 0; row < 16; ++row)
    for (int c = 0; c < 64; ++c) {
      const int want = row + 1 < 5 ? ((5 + row + 1) * 3 + 2) * 64 + c + 1 : 0;
      EXPECT_EQ(got[static_cast<std::size_t>(row * 64 + c)], want) << row << "," << c;
    }
}

TEST(Async, TensorMapsTheDriverRefusesAreRefused) {
  const DeviceArray<__half> in(numbered(16 * 128));
  const auto encode = [&](std::size_t offset, cuuint64_t stride, cuuint32_t inner, cuuint32_t rows) {
    CUtensorMap map;
    const cuuint64_t dims[] = {128, 16, 1}, strides[] = {stride, 16 * 256};
    const cuuint32_t box[] = {inner, rows, 1}, steps[] = {1, 1, 1};
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, in.data() + offset, dims, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  EXPECT_EQ(encode(0, 256, 64, 16), CUDA_SUCCESS);
  EXPECT_EQ(encode(4, 256, 64, 16), CUDA_ERROR_INVALID_VALUE);   // base aligned to 8 bytes
  EXPECT_EQ(encode(0, 264, 64, 16), CUDA_ERROR_INVALID_VALUE);   // stride no multiple of 16
  EXPECT_EQ(encode(0, 256, 128, 16), CUDA_ERROR_INVALID_VALUE);  // 256 bytes under a 128-byte swizzle
  EXPECT_EQ(encode(0, 256, 64, 257), CUDA_ERROR_INVALID_VALUE);  // over 256 rows
}

// A ring of two slots that a producer warp fills and a consumer warp sums: five rounds, so both parities come
// twice.
constexpr int kRounds = 5;
enum class Ring {
  right,
  no_full_wait,
  no_empty_wait,
  wrong_parity,
  bytes_missing,
  no_init_fence,
  no_init_sync
};

__global__ void ring(const CUtensorMap map, unsigned* sums, Ring what) {
  unsigned char* const tiles = aligned_shared();
  auto* const full = reinterpret_cast<std::uint64_t*>(tiles + 4096);
  std::uint64_t* const empty = full + 2;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(full + i, 1);
      ptx::mbarrier_init(empty + i, 32);
    }
    if (what != Ring::no_init_fence) ptx::mbarrier_init_fence();
  }
  if (what != Ring::no_init_sync) __syncthreads();
  for (int round = 0; round < kRounds; ++round) {
    const int slot = round % 2;
    const unsigned phase = static_cast<unsigned>(round / 2 % 2);
    if (threadIdx.x < 32) {
      if (threadIdx.x != 0) continue;
      const unsigned free = what == Ring::wrong_parity ? phase : phase ^ 1;
      if (what != Ring::no_empty_wait) ptx::mbarrier_wait(empty + slot, free);
      ptx::mbarrier_arrive_expect_tx(full + slot, what == Ring::bytes_missing ? 2048 - 16 : 2048);
      ptx::tma_load(tiles + slot * 2048, &map, full + slot, 0, round * 16, 0);
    } else {
      if (what != Ring::no_full_wait) ptx::mbarrier_wait(full + slot, phase);
      unsigned sum = 0;
      for (unsigned i = threadIdx.x - 32; i < 1024; i += 32)
        sum += ptx::load_shared<std::uint16_t>(ptx::shared_address(tiles) +
                                               static_cast<unsigned>(slot) * 2048 + i * 2);
      ptx::store_global(sums + round * 32 + threadIdx.x - 32, sum);
      ptx::mbarrier_arrive(empty + slot);
    }
  }
}

void run_ring(Ring what) {
  const DeviceArray<__half> in(numbered(kRounds * 16 * 64));
  const CUtensorMap map = simt::half_map(in.data(), {64, kRounds * 16, 1}, {64, 16, 1});
  const DeviceArray<unsigned> sums(kRounds * 32);
  run_block(ring, 64, 6144, map, sums.data(), what);
  const auto got = sums.host();
  for (unsigned round = 0; round < kRounds; ++round) {
    unsigned sum = 0;
    for (unsigned lane = 0; lane < 32; ++lane) sum += got[round * 32 + lane];
    EXPECT_EQ(sum, round * 1024 * 1024 + 1024 * 1025 / 2);
  }
}

TEST(Async, RingOfTwoSlotsHandsOverEveryTile) {
  simt::in_every_seed([] { run_ring(Ring::right); });
}
TEST(AsyncFaults, ReadingATileWithoutWaitingForIt) {
  // A race, or a consumer so early that the ring loses step and deadlocks.
  simt::expect_some_fault([] { run_ring(Ring::no_full_wait); });
}
TEST(AsyncFaults, FillingATileThatIsStillRead) {
  // A race, or a second arrival in a phase whose bytes are not there yet.
  simt::expect_some_fault([] { run_ring(Ring::no_empty_wait); });
}
TEST(AsyncFaults, WaitingForTheWrongParity) {
  simt::expect_fault(FaultKind::deadlock, "mbarrier parity", [] { run_ring(Ring::wrong_parity); });
}
TEST(AsyncFaults, AnnouncingTooFewBytes) {
  simt::expect_fault(FaultKind::deadlock, "mbarrier parity", [] { run_ring(Ring::bytes_missing); });
}
TEST(AsyncFaults, NoFenceAfterTheInit) {
  simt::expect_fault(FaultKind::usage, "fence.mbarrier_init", [] { run_ring(Ring::no_init_fence); });
}
TEST(AsyncFaults, NoBarrierAfterTheInit) {
  simt::expect_some_fault([] { run_ring(Ring::no_init_sync); });  // a race, or use before the init
}

enum class Reduce { right, no_fence, overwritten, not_committed, not_waited };

__global__ void reduce(float* out, Reduce what) {
  auto* const s = reinterpret_cast<float*>(ptx::dynamic_shared());
  ptx::store_shared(s + threadIdx.x, static_cast<float>(threadIdx.x + blockIdx.x * 1000));
  if (what != Reduce::no_fence) ptx::fence_proxy_async();
  __syncthreads();
  if (threadIdx.x != 0) return;
  ptx::bulk_reduce_add(out + blockIdx.x * 64, s, 64 * 4);
  if (what != Reduce::not_committed) ptx::bulk_commit();
  if (what == Reduce::overwritten) ptx::store_shared(s, -1.0f);
  if (what != Reduce::not_waited) ptx::bulk_wait_read<0>();
}
void run_reduce(Reduce what) {
  const DeviceArray<float> out(std::vector<float>(3 * 64, 0.5f));
  const simt::StreamOwner stream;
  simt::launch(reduce, dim3(3), dim3(64), 256, stream, out.data(), what);
  cudaStreamSynchronize(stream);
  const std::vector<float> sums = out.host();
  for (unsigned i = 0; i < 3 * 64; ++i)
    EXPECT_EQ(sums[i], 0.5f + static_cast<float>(i % 64) + static_cast<float>(i / 64 * 1000));
}
TEST(Async, BulkReductionsAddToWhatIsThere) {
  simt::in_every_seed([] { run_reduce(Reduce::right); });
}
TEST(AsyncFaults, BulkReductionOfStoresThatWereNotFenced) {
  simt::expect_fault(FaultKind::race, "fence.proxy.async", [] { run_reduce(Reduce::no_fence); });
}
TEST(AsyncFaults, OverwritingWhatABulkReductionReads) {
  simt::expect_fault(FaultKind::race, "", [] { run_reduce(Reduce::overwritten); });
}
TEST(AsyncFaults, BulkReductionNeverCommitted) {
  simt::expect_fault(FaultKind::race, "never committed", [] { run_reduce(Reduce::not_committed); });
}
TEST(AsyncFaults, EndingTheBlockWhileABulkReductionReads) {
  simt::expect_fault(FaultKind::race, "block ended", [] { run_reduce(Reduce::not_waited); });
}

__global__ void elect(int* elected) {
  if (ptx::elect_one()) ptx::atomic_add_global(elected + threadIdx.x % 32, 1);
}
TEST(Async, ElectChoosesOneLaneAndNotAlwaysTheSame) {
  std::vector<int> times(32);
  simt::in_every_seed([&] {
    const DeviceArray<int> elected(std::vector<int>(32, 0));
    run_block(elect, 32, 0, elected.data());
    const auto got = elected.host();
    EXPECT_EQ(std::count(got.begin(), got.end(), 1), 1);
    for (std::size_t i = 0; i < 32; ++i) times[i] += got[i];
  });
  EXPECT_GT(32 - std::count(times.begin(), times.end(), 0), 4);
}

template <int kRelease, int kClaim>
__global__ void registers(unsigned releasing_threads) {
  if (threadIdx.x < releasing_threads)
    ptx::registers_release<kRelease>();
  else
    ptx::registers_claim<kClaim>();
}
TEST(Async, RegistersMoveBetweenWarpgroups) { run_block(registers<24, 240>, 384, 0, 128u); }
TEST(AsyncFaults, MoreRegistersThanThereAre) {
  simt::expect_fault(FaultKind::usage, "of 65536", [] { run_block(registers<40, 240>, 384, 0, 128u); });
}
TEST(AsyncFaults, RegistersOfHalfAWarpgroup) {
  simt::expect_fault(FaultKind::divergence, "setmaxnreg", [] { run_block(registers<24, 160>, 384, 0, 64u); });
}

}  // namespace
}  // namespace ringattn
