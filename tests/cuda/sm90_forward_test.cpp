// Forward of chapter 3 on the harness: wgmma, TMA and mbarriers, against the oracle. Groups are 128 or 192
// queries, tiles 128 or 64 keys; lengths are prime, so that nothing divides.
#include <gtest/gtest.h>

#include "kernels/cuda/sm90/attend.h"
#include "src/error.h"
#include "tests/cuda/unsplit.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

constexpr DType kDtypes[] = {DType::bf16, DType::f16};

TEST(CudaSm90Forward, IsWhatAutoChoosesFor16Bits) {
  for (const DType dtype : kDtypes) {
    const Problem p = problem_of({1, 1, 1, 128, 128}, dtype, 3, 3, full_tiles(3, 3));
    const DeviceStream stream;
    EXPECT_EQ(cuda_kernel(p, stream)->name(), "cuda/sm_90a");
  }
}

// Every shape that is compiled, filled and with columns to spare, with at least two whole tiles in a row.
TEST(CudaSm90Forward, EveryHeadDim) {
  struct Dims {
    index_t k, v;
  };
  for (const Dims d : {Dims{64, 64},
                       {7, 33},
                       {80, 80},
                       {96, 96},
                       {128, 128},
                       {40, 128},
                       {128, 1},
                       {192, 128},
                       {136, 100},
                       {256, 256},
                       {200, 200},
                       {64, 256}})
    for (const DType dtype : kDtypes) {
      SCOPED_TRACE(text(dtype) + " head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, dtype, 67, 331, causal_tiles(67, 331));
      const Inputs in = random_inputs(p, 11);
      expect_accurate(run_unsplit("sm_90a", p, in), p, in);
    }
}

// The longer hop has runs of whole tiles, of which two are at work at once.
TEST(CudaSm90Forward, EveryMaskAndGroupAcrossHops) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}})
    for (const auto& tiles :
         {full_tiles(149, 461), causal_tiles(149, 461), window_tiles(149, 461, 320, 30)}) {
      SCOPED_TRACE("heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
      const Problem p = problem_of({seed % 3 / 2 + 1, h.q, h.kv, 52, 64}, kDtypes[seed % 2], 149, 461, tiles);
      const Inputs in = random_inputs(p, ++seed);
      expect_accurate(run_unsplit("sm_90a", p, in, blocks_of(347, 461)), p, in);
    }
}

// Around the sizes of a warpgroup, a group and a tile; empty ones.
TEST(CudaSm90Forward, EveryLength) {
  for (const index_t dim : {64, 128})
    for (const index_t q_rows : {0, 1, 64, 65, 129, 193})
      for (const index_t k_rows : {0, 1, 95, 97, 128, 257}) {
        SCOPED_TRACE(std::to_string(dim) + ": " + std::to_string(q_rows) + " x " + std::to_string(k_rows));
        const Problem p = problem_of(
            {1, 1, 1, dim, dim}, DType::bf16, q_rows, k_rows,
            (q_rows + k_rows) % 3 == 0 ? full_tiles(q_rows, k_rows) : causal_tiles(q_rows, k_rows));
        const Inputs in = random_inputs(p, 7);
        expect_accurate(run_unsplit("sm_90a", p, in), p, in);
      }
}

// Runs of whole tiles, and tiles hidden in part before, between and after them.
TEST(CudaSm90Forward, ManyTilesInAGroup) {
  for (unsigned seed = 1; seed <= 2; ++seed) {
    SCOPED_TRACE(seed);
    const index_t dim = seed % 2 == 0 ? 64 : 128;
    const Problem documents =
        problem_of({1, 2, 1, dim, dim}, DType::bf16, 211, 211, random_documents(211, seed));
    const Inputs in = random_inputs(documents, seed);
    expect_accurate(run_unsplit("sm_90a", documents, in), documents, in);
    const Problem grid = problem_of({1, 2, 1, dim, dim}, DType::f16, 211, 331, random_grid(211, 331, seed));
    const Inputs grid_in = random_inputs(grid, seed);
    expect_accurate(run_unsplit("sm_90a", grid, grid_in, blocks_of(223, 331), Ending::finish), grid, grid_in);
  }
  const Problem mixed = problem_of({1, 2, 1, 64, 64}, DType::bf16, 192, 700,
                                   {{{0, 192}, {0, 300}, {}},
                                    {{0, 192}, {300, 410}, {.hi = 260}},
                                    {{0, 192}, {410, 620}, {}},
                                    {{64, 128}, {620, 700}, {}}});
  const Inputs in = random_inputs(mixed, 5);
  expect_accurate(run_unsplit("sm_90a", mixed, in), mixed, in);
}

TEST(CudaSm90Forward, BandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 64, 64}, DType::bf16, 97, 131, {{{0, 97}, {0, 131}, band}});
    const Inputs in = random_inputs(p, 3);
    expect_accurate(run_unsplit("sm_90a", p, in), p, in);
  }
}

// Narrow bands at many offsets from groups and tiles; above the diagonal too, where whole tiles are hidden
// from some of the rows before they see any.
TEST(CudaSm90Forward, NarrowBands) {
  for (index_t lo = -190; lo <= 230; lo += 29)
    for (const index_t width : {0, 9, 130}) {
      SCOPED_TRACE(std::to_string(lo) + " + " + std::to_string(width));
      const Problem p =
          problem_of({1, 1, 1, 64, 128}, DType::bf16, 199, 251, {{{3, 190}, {5, 249}, {lo, lo + width}}});
      const Inputs in = random_inputs(p, 3);
      expect_accurate(run_unsplit("sm_90a", p, in), p, in);
    }
}

// Logits of +-300 and more: the running maximum jumps, rows are rescaled often.
TEST(CudaSm90Forward, LargeLogits) {
  for (const DType dtype : kDtypes)
    for (const double deviation : {10.0, 100.0, 1000.0}) {
      SCOPED_TRACE(text(dtype) + " " + std::to_string(deviation));
      const Problem p = problem_of({1, 2, 1, 64, 64}, dtype, 29, 431, causal_tiles(29, 431));
      const Inputs in = random_inputs(p, 5, deviation);
      expect_accurate(run_unsplit("sm_90a", p, in, blocks_of(212, 431)), p, in);
    }
}

// Negative scales turn the order of the keys round; with scale 0 every key has the same weight (case A40).
// 3e-39 is below the smallest normal fp32.
TEST(CudaSm90Forward, EveryScale) {
  for (const DType dtype : kDtypes)
    for (const double scale : {-0.3, -1.0, 0.0, 3.7, 3e-39, 1e-60}) {
      SCOPED_TRACE(text(dtype) + " " + std::to_string(scale));
      Problem p = problem_of({1, 2, 1, 12, 20}, dtype, 29, 211, causal_tiles(29, 211));
      p.scale = scale;
      const Inputs in = random_inputs(p, 6);
      expect_accurate(run_unsplit("sm_90a", p, in), p, in);
    }
}

TEST(CudaSm90Forward, RotationAgainstTheOracle) {
  Problem p = problem_of({2, 4, 2, 80, 64}, DType::bf16, 71, 143, causal_tiles(71, 143));
  p.q_rotation = test_rotation(72, true, 72);
  p.k_rotation = test_rotation(72, true, 0);
  const Inputs in = random_inputs(p, 21);
  expect_accurate(run_unsplit("sm_90a", p, in, blocks_of(64, 143)), p, in);
}

// Whatever the order of the tiles, the end, and the order in which warps run and copies land.
TEST(CudaSm90Forward, BitsAreTheSameEveryTime) {
  Problem p = problem_of({1, 1, 1, 128, 128}, DType::bf16, 151, 331, random_grid(151, 331, 3));
  const Inputs in = random_inputs(p, 9);
  const Result first = run_unsplit("sm_90a", p, in, blocks_of(223, 331));
  EXPECT_TRUE(same_bits(first, run_unsplit("sm_90a", p, in, blocks_of(223, 331), Ending::finish)));
  std::ranges::reverse(p.tiles);
  const std::uint64_t seed = simt::config().seed;
  for (simt::config().seed = 50; simt::config().seed < 54; ++simt::config().seed)
    EXPECT_TRUE(same_bits(first, run_unsplit("sm_90a", p, in, blocks_of(223, 331))));
  simt::config().seed = seed;
}

// A first key with nearly all the weight and 4,096 light ones: 4,096 e^-17 = 1.7e-4 of the sum, which the
// lse must show and which f16 weights of 4e-8 would lose.
TEST(CudaSm90Forward, AHeavyFirstKeyDoesNotDrownManyLightKeysInTheLse) {
  const index_t keys = 4097;
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::bf16, 1, keys, full_tiles(1, keys));
  p.scale = 1;
  Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 1)};
  in.k.set(0, 17.0);
  const Result result = run_unsplit("sm_90a", p, in, {{0, 1}, {1, keys}});
  EXPECT_NEAR(static_cast<double>(result.lse[0]), oracle(p, in).lse[0], 0x1p-23 * 17);
}

// Every pair of a head and a group once, and a section's heads before the next ones'.
TEST(CudaSm90Forward, BlocksOfThreadsCoverAllHeadsAndGroups) {
  for (const index_t heads : {1, 6, 7})
    for (const index_t groups : {1, 5})
      for (index_t section = 1; section <= heads; ++section) {
        std::vector<int> times(static_cast<std::size_t>(heads * groups));
        for (index_t block = 0; block < heads * groups; ++block) {
          const auto place = cuda::sm90::place_of(block, groups, heads, section);
          ASSERT_LT(place.head, heads);
          ASSERT_LT(place.group, groups);
          EXPECT_EQ(place.head / section, block / (groups * section));
          ++times[static_cast<std::size_t>(place.head * groups + place.group)];
        }
        EXPECT_EQ(times, std::vector<int>(times.size(), 1));
      }
}

TEST(CudaSm90Forward, RefusesByNameWhatItCannotDo) {
  const DeviceStream stream;
  const auto refused = [&](const HeadShape& shape, DType dtype, const std::string& why) {
    const Problem p = problem_of(shape, dtype, 3, 3, full_tiles(3, 3));
    try {
      make_cuda_kernel(config_of(p, "sm_90a"), stream.get());
      ADD_FAILURE() << "not refused: " << why;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  };
  refused({1, 1, 1, 64, 64}, DType::f32, "dtype is f32");
  refused({1, 1, 1, 264, 64}, DType::bf16, "head_dim is 264");
  refused({1, 1, 1, 64, 300}, DType::bf16, "head_dim_v is 300");
  simt::config().compute_capability = 80;
  const Problem p = problem_of({1, 1, 1, 64, 64}, DType::bf16, 3, 3, full_tiles(3, 3));
  EXPECT_THROW(make_cuda_kernel(config_of(p, "sm_90a"), stream.get()), DeviceError);
  EXPECT_NE(cuda_kernel(p, stream)->name(), "cuda/sm_90a");
  simt::config().compute_capability = 90;
}

}  // namespace
}  // namespace ringattn::test
