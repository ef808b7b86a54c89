// Backward of chapter 3 on the harness, against the oracle. Groups are 128 rows, queries for dq and keys for
// dk and dv, against tiles of 64; lengths are prime, so that nothing divides.
#include <gtest/gtest.h>

#include "tests/cuda/support.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

constexpr DType kDtypes[] = {DType::bf16, DType::f16};

// Both shapes, filled and with columns to spare; above 128 the chapter below takes over.
TEST(CudaSm90Backward, EveryHeadDim) {
  struct Dims {
    index_t k, v;
  };
  for (const Dims d : {Dims{64, 64}, {7, 33}, {80, 80}, {96, 128}, {128, 128}, {128, 1}, {136, 20}})
    for (const DType dtype : kDtypes) {
      SCOPED_TRACE(text(dtype) + " head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, dtype, 71, 139, causal_tiles(71, 139));
      const BackwardInputs in = random_backward_inputs(p, 11);
      expect_accurate(run_backward_cuda("sm_90a", p, in), p, in);
    }
}

TEST(CudaSm90Backward, EveryMaskAndGroupAcrossHops) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}})
    for (const auto& tiles : {full_tiles(149, 211), causal_tiles(149, 211), window_tiles(149, 211, 80, 30)}) {
      SCOPED_TRACE("heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
      const Problem p = problem_of({seed % 3 / 2 + 1, h.q, h.kv, 52, 64}, kDtypes[seed % 2], 149, 211, tiles);
      const BackwardInputs in = random_backward_inputs(p, ++seed);
      expect_accurate(run_backward_cuda("sm_90a", p, in, blocks_of(137, 211)), p, in);
    }
}

// Around the sizes of a warpgroup, a group and a tile; empty ones.
TEST(CudaSm90Backward, EveryLength) {
  for (const index_t q_rows : {0, 1, 63, 64, 65, 129})
    for (const index_t k_rows : {0, 1, 63, 64, 65, 129}) {
      SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
      const Problem p =
          problem_of({1, 2, 1, 12, 9}, DType::bf16, q_rows, k_rows,
                     (q_rows + k_rows) % 3 == 0 ? full_tiles(q_rows, k_rows) : causal_tiles(q_rows, k_rows));
      const BackwardInputs in = random_backward_inputs(p, 7);
      expect_accurate(run_backward_cuda("sm_90a", p, in), p, in);
    }
}

TEST(CudaSm90Backward, ManyTilesInAGroup) {
  const Problem documents = problem_of({1, 2, 1, 128, 128}, DType::bf16, 151, 151, random_documents(151, 2));
  const BackwardInputs in = random_backward_inputs(documents, 1);
  expect_accurate(run_backward_cuda("sm_90a", documents, in), documents, in);
  const Problem grid = problem_of({1, 3, 1, 64, 64}, DType::f16, 149, 251, random_grid(149, 251, 1));
  const BackwardInputs grid_in = random_backward_inputs(grid, 2);
  expect_accurate(run_backward_cuda("sm_90a", grid, grid_in, blocks_of(147, 251)), grid, grid_in);
}

TEST(CudaSm90Backward, BandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 8, 8}, DType::bf16, 97, 131, {{{0, 97}, {0, 131}, band}});
    const BackwardInputs in = random_backward_inputs(p, 3);
    expect_accurate(run_backward_cuda("sm_90a", p, in), p, in);
  }
}

TEST(CudaSm90Backward, NarrowBands) {
  for (index_t lo = -130; lo <= 160; lo += 29)
    for (const index_t width : {0, 9, 70}) {
      SCOPED_TRACE(std::to_string(lo) + " + " + std::to_string(width));
      const Problem p =
          problem_of({1, 1, 1, 8, 8}, DType::bf16, 139, 171, {{{3, 130}, {5, 169}, {lo, lo + width}}});
      const BackwardInputs in = random_backward_inputs(p, 3);
      expect_accurate(run_backward_cuda("sm_90a", p, in), p, in);
    }
}

// Negative scales turn the order of the keys round; with scale 0 every key has the same weight and neither dq
// nor dk is anything but 0 (case A40). 3e-39 is below the smallest normal fp32.
TEST(CudaSm90Backward, EveryScale) {
  for (const DType dtype : kDtypes)
    for (const double scale : {-0.3, -1.0, 0.0, 3.7, 3e-39}) {
      SCOPED_TRACE(text(dtype) + " " + std::to_string(scale));
      Problem p = problem_of({1, 2, 1, 12, 20}, dtype, 29, 71, causal_tiles(29, 71));
      p.scale = scale;
      const BackwardInputs in = random_backward_inputs(p, 6);
      const Gradients got = run_backward_cuda("sm_90a", p, in);
      expect_accurate(got, p, in);
      if (scale == 0) {
        EXPECT_EQ(largest(got.dq.doubles()), 0.0);
        EXPECT_EQ(largest(got.dk.doubles()), 0.0);
      }
    }
}

TEST(CudaSm90Backward, GradientsAreTurnedBack) {
  Problem p = problem_of({2, 4, 2, 20, 12}, DType::bf16, 71, 143, causal_tiles(71, 143));
  p.q_rotation = test_rotation(18, true, 72);
  p.k_rotation = test_rotation(18, true, 0);
  const BackwardInputs in = random_backward_inputs(p, 21);
  expect_accurate(run_backward_cuda("sm_90a", p, in, blocks_of(64, 143)), p, in);
}

// Whatever the order of the tiles and the order in which warps run and copies land.
TEST(CudaSm90Backward, BitsAreTheSameEveryTime) {
  Problem p = problem_of({1, 1, 1, 128, 128}, DType::bf16, 131, 199, random_grid(131, 199, 3));
  const BackwardInputs in = random_backward_inputs(p, 9);
  const Gradients first = run_backward_cuda("sm_90a", p, in, blocks_of(123, 199));
  std::ranges::reverse(p.tiles);
  const std::uint64_t seed = simt::config().seed;
  for (simt::config().seed = 50; simt::config().seed < 53; ++simt::config().seed)
    EXPECT_TRUE(same_bits(first, run_backward_cuda("sm_90a", p, in, blocks_of(123, 199))));
  simt::config().seed = seed;
}

}  // namespace
}  // namespace ringattn::test
