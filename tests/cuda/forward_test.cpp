// Forward of the CUDA kernels on the harness, random problems against the oracle. Lengths are prime: nothing
// divides.
#include <gtest/gtest.h>

#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

class CudaForward : public EveryChapter {};
INSTANTIATE_TEST_SUITE_P(All, CudaForward, ::testing::ValuesIn(kChapters));

TEST_P(CudaForward, EveryHeadDim) {
  struct Dims {
    index_t k, v;
  };
  for (const Dims d : {Dims{1, 1},
                       {7, 7},
                       {64, 64},
                       {80, 80},
                       {128, 128},
                       {256, 256},
                       {512, 300},
                       {192, 128},
                       {64, 3},
                       {5, 41}}) {
    if (!can(d.k, d.v)) continue;
    for (const DType type : dtypes()) {
      SCOPED_TRACE(text(type) + " head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, type, 19, 67, causal_tiles(19, 67));
      const Inputs in = random_inputs(p, 11);
      expect_accurate(run_cuda(p, in), p, in);
    }
  }
}

TEST_P(CudaForward, EveryDtypeMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const DType type : dtypes())
    for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}})
      for (const auto& tiles : {full_tiles(23, 71), causal_tiles(23, 71), window_tiles(23, 71, 20, 3)}) {
        SCOPED_TRACE(text(type) + " heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
        const Problem p = problem_of({2, h.q, h.kv, 20, 28}, type, 23, 71, tiles);
        const Inputs in = random_inputs(p, ++seed);
        expect_accurate(run_cuda(p, in, blocks_of(37, 71)), p, in);
      }
}

// Around the sizes of a group and of a step.
TEST_P(CudaForward, EveryLength) {
  for (const index_t q_rows : {0, 1, 15, 16, 17, 33})
    for (const index_t k_rows : {0, 1, 31, 32, 33, 65})
      for (const auto& tiles : {full_tiles(q_rows, k_rows), causal_tiles(q_rows, k_rows)}) {
        SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
        const Problem p = problem_of({1, 2, 1, 12, 9}, dtype(), q_rows, k_rows, tiles);
        const Inputs in = random_inputs(p, 7);
        expect_accurate(run_cuda(p, in), p, in);
      }
}

TEST_P(CudaForward, ManyTilesInAGroup) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const Problem documents = problem_of({1, 3, 1, 10, 16}, dtype(), 97, 97, random_documents(97, seed));
    const Inputs in = random_inputs(documents, seed);
    expect_accurate(run_cuda(documents, in), documents, in);
    const Problem grid = problem_of({1, 3, 1, 10, 16}, dtype(), 89, 131, random_grid(89, 131, seed));
    const Inputs grid_in = random_inputs(grid, seed);
    expect_accurate(run_cuda(grid, grid_in, blocks_of(47, 131), Ending::finish), grid, grid_in);
  }
}

TEST_P(CudaForward, BandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 8, 8}, dtype(), 53, 61, {{{0, 53}, {0, 61}, band}});
    const Inputs in = random_inputs(p, 3);
    expect_accurate(run_cuda(p, in), p, in);
  }
}

// Narrow bands at every offset from groups and steps.
TEST_P(CudaForward, NarrowBands) {
  for (index_t lo = -60; lo <= 60; lo += 7)
    for (const index_t width : {0, 9, 30}) {
      SCOPED_TRACE(std::to_string(lo) + " + " + std::to_string(width));
      const Problem p = problem_of({1, 1, 1, 8, 8}, dtype(), 71, 79, {{{3, 67}, {5, 77}, {lo, lo + width}}});
      const Inputs in = random_inputs(p, 3);
      expect_accurate(run_cuda(p, in), p, in);
    }
}

// Logits of +-300 and more: the running maximum jumps, rows are rescaled often.
TEST_P(CudaForward, LargeLogits) {
  for (const DType type : dtypes())
    for (const double deviation : {10.0, 100.0, 1000.0}) {
      const Problem p = problem_of({1, 2, 1, 64, 64}, type, 29, 131, causal_tiles(29, 131));
      const Inputs in = random_inputs(p, 5, deviation);
      expect_accurate(run_cuda(p, in, blocks_of(64, 131)), p, in);
    }
}

// Rising and falling scores are the two extremes of rescaling.
TEST_P(CudaForward, RisingAndFallingScores) {
  for (const double slope : {20.0, -20.0}) {
    Problem p = problem_of({1, 1, 1, 1, 4}, dtype(), 18, 130, full_tiles(18, 130));
    p.scale = slope;
    const Inputs in{filled(p.dtype, p.q_shape(), 1), key_indices(p.dtype, p.k_shape()),
                    random_tensor(p.dtype, p.v_shape(), 8)};
    expect_accurate(run_cuda(p, in), p, in);
  }
}

// Negative scales turn the order of the keys round; with scale 0 every key has the same weight (case A40).
// 3e-39 is below the smallest normal fp32.
TEST_P(CudaForward, EveryScale) {
  for (const DType type : dtypes())
    for (const double scale : {-0.3, -1.0, 0.0, 3.7, 3e-39}) {
      SCOPED_TRACE(text(type) + " " + std::to_string(scale));
      Problem p = problem_of({1, 2, 1, 12, 20}, type, 29, 71, causal_tiles(29, 71));
      p.scale = scale;
      const Inputs in = random_inputs(p, 6);
      expect_accurate(run_cuda(p, in), p, in);
    }
}

TEST_P(CudaForward, RotationAgainstTheOracle) {
  for (const DType type : dtypes())
    for (const bool interleaved : {false, true})
      for (const index_t dim : {2, 18, 20}) {
        SCOPED_TRACE(text(type) + (interleaved ? " interleaved " : " half ") + std::to_string(dim));
        Problem p = problem_of({2, 4, 2, 20, 12}, type, 21, 43, causal_tiles(21, 43));
        p.q_rotation = test_rotation(dim, interleaved, 20);
        p.k_rotation = test_rotation(dim, interleaved, 0);
        const Inputs in = random_inputs(p, 21);
        expect_accurate(run_cuda(p, in, blocks_of(24, 43)), p, in);
      }
}

// The same sums whatever the order of the tiles, the end, and the run.
TEST_P(CudaForward, BitsAreTheSameEveryTime) {
  Problem p = problem_of({1, 4, 2, 12, 20}, dtype(), 89, 131, random_grid(89, 131, 3));
  const Inputs in = random_inputs(p, 9);
  const Result first = run_cuda(p, in, blocks_of(47, 131));
  EXPECT_TRUE(same_bits(first, run_cuda(p, in, blocks_of(47, 131), Ending::finish)));
  std::ranges::reverse(p.tiles);
  EXPECT_TRUE(same_bits(first, run_cuda(p, in, blocks_of(47, 131))));
}

// A first key with nearly all the weight and 4,096 light ones, each below half a unit of it: added one by one
// they would be lost (4.5e-5 of the sum for 750 keys of 2^-24; see kernels/cpu/run.cpp).
TEST_P(CudaForward, AHeavyFirstBlockDoesNotDrownManyLightKeys) {
  const index_t keys = 4097;
  Problem p = problem_of({1, 1, 1, 1, 1}, dtype(), 1, keys, full_tiles(1, keys));
  p.scale = 1;
  Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), 0),
            filled(p.dtype, p.v_shape(), 1)};
  in.k.set(0, 17.0);  // weight 1 beside e^-17 = 4e-8, less than 2^-24
  in.v.set(0, 0.0);
  const Answer truth = oracle(p, in);
  const Result result = run_cuda(p, in, {{0, 1}, {1, keys}});
  // A bf16 output is rounded, half a unit is 2^-9.
  EXPECT_NEAR(result.out.get(0) / truth.out[0], 1, plain() ? 1e-5 : 0x1p-8);
  EXPECT_NEAR(static_cast<double>(result.lse[0]), truth.lse[0], 0x1p-23 * 17);
}

}  // namespace
}  // namespace ringattn::test
