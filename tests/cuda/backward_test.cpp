// Backward of the CUDA kernels on the harness, random problems against the oracle. Lengths are prime: nothing
// divides.
#include <gtest/gtest.h>

#include "tests/cuda/support.h"

namespace ringattn::test {
namespace {

class CudaBackward : public EveryChapter {};
INSTANTIATE_TEST_SUITE_P(All, CudaBackward, ::testing::ValuesIn(kChapters));

TEST_P(CudaBackward, EveryHeadDim) {
  struct Dims {
    index_t k, v;
  };
  for (const Dims d : {Dims{1, 1},
                       {7, 7},
                       {64, 64},
                       {80, 80},
                       {128, 128},
                       {256, 256},
                       {300, 512},
                       {192, 128},
                       {64, 3},
                       {5, 41}}) {
    if (!can(d.k, d.v)) continue;
    for (const DType type : dtypes()) {
      SCOPED_TRACE(text(type) + " head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, type, 19, 43, causal_tiles(19, 43));
      const BackwardInputs in = random_backward_inputs(p, 11);
      expect_accurate(run_backward_cuda(p, in), p, in);
    }
  }
}

TEST_P(CudaBackward, EveryDtypeMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const DType type : dtypes())
    for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}})
      for (const auto& tiles : {full_tiles(23, 71), causal_tiles(23, 71), window_tiles(23, 71, 20, 3)}) {
        SCOPED_TRACE(text(type) + " heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
        const Problem p = problem_of({2, h.q, h.kv, 20, 28}, type, 23, 71, tiles);
        const BackwardInputs in = random_backward_inputs(p, ++seed);
        expect_accurate(run_backward_cuda(p, in, blocks_of(37, 71)), p, in);
      }
}

// Around the sizes of a group and of a step.
TEST_P(CudaBackward, EveryLength) {
  for (const index_t q_rows : {0, 1, 15, 16, 17, 33})
    for (const index_t k_rows : {0, 1, 31, 32, 33, 65})
      for (const auto& tiles : {full_tiles(q_rows, k_rows), causal_tiles(q_rows, k_rows)}) {
        SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
        const Problem p = problem_of({1, 2, 1, 12, 9}, dtype(), q_rows, k_rows, tiles);
        const BackwardInputs in = random_backward_inputs(p, 7);
        expect_accurate(run_backward_cuda(p, in), p, in);
      }
}

TEST_P(CudaBackward, ManyTilesInAGroup) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const Problem documents = problem_of({1, 3, 1, 10, 16}, dtype(), 97, 97, random_documents(97, seed));
    const BackwardInputs in = random_backward_inputs(documents, seed);
    expect_accurate(run_backward_cuda(documents, in), documents, in);
    const Problem grid = problem_of({1, 3, 1, 10, 16}, dtype(), 89, 131, random_grid(89, 131, seed));
    const BackwardInputs grid_in = random_backward_inputs(grid, seed);
    expect_accurate(run_backward_cuda(grid, grid_in, blocks_of(47, 131)), grid, grid_in);
  }
}

TEST_P(CudaBackward, BandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 8, 8}, dtype(), 53, 61, {{{0, 53}, {0, 61}, band}});
    const BackwardInputs in = random_backward_inputs(p, 3);
    expect_accurate(run_backward_cuda(p, in), p, in);
  }
}

// Narrow bands at every offset from groups and steps.
TEST_P(CudaBackward, NarrowBands) {
  for (index_t lo = -60; lo <= 60; lo += 7)
    for (const index_t width : {0, 9, 30}) {
      SCOPED_TRACE(std::to_string(lo) + " + " + std::to_string(width));
      const Problem p = problem_of({1, 1, 1, 8, 8}, dtype(), 71, 79, {{{3, 67}, {5, 77}, {lo, lo + width}}});
      const BackwardInputs in = random_backward_inputs(p, 3);
      expect_accurate(run_backward_cuda(p, in), p, in);
    }
}

TEST_P(CudaBackward, LargeLogits) {
  for (const double deviation : {10.0, 100.0}) {
    const Problem p = problem_of({1, 2, 1, 64, 64}, dtype(), 29, 131, causal_tiles(29, 131));
    const BackwardInputs in = random_backward_inputs(p, 5, deviation);
    expect_accurate(run_backward_cuda(p, in, blocks_of(64, 131)), p, in);
  }
}

// Negative scales turn the order of the keys round; with scale 0 every key has the same weight and neither dq
// nor dk is anything but 0 (case A40). 3e-39 is below the smallest normal fp32.
TEST_P(CudaBackward, EveryScale) {
  for (const DType type : dtypes())
    for (const double scale : {-0.3, -1.0, 0.0, 3.7, 3e-39}) {
      SCOPED_TRACE(text(type) + " " + std::to_string(scale));
      Problem p = problem_of({1, 2, 1, 12, 20}, type, 29, 71, causal_tiles(29, 71));
      p.scale = scale;
      const BackwardInputs in = random_backward_inputs(p, 6);
      const Gradients got = run_backward_cuda(p, in);
      expect_accurate(got, p, in);
      if (scale == 0) {
        EXPECT_EQ(largest(got.dq.doubles()), 0.0);
        EXPECT_EQ(largest(got.dk.doubles()), 0.0);
      }
    }
}

TEST_P(CudaBackward, GradientsAreTurnedBack) {
  for (const DType type : dtypes())
    for (const bool interleaved : {false, true})
      for (const index_t dim : {2, 18, 20}) {
        SCOPED_TRACE(text(type) + (interleaved ? " interleaved " : " half ") + std::to_string(dim));
        Problem p = problem_of({2, 4, 2, 20, 12}, type, 21, 43, causal_tiles(21, 43));
        p.q_rotation = test_rotation(dim, interleaved, 20);
        p.k_rotation = test_rotation(dim, interleaved, 0);
        const BackwardInputs in = random_backward_inputs(p, 21);
        expect_accurate(run_backward_cuda(p, in, blocks_of(24, 43)), p, in);
      }
}

TEST_P(CudaBackward, BitsAreTheSameEveryTime) {
  Problem p = problem_of({1, 4, 2, 12, 20}, dtype(), 89, 131, random_grid(89, 131, 3));
  const BackwardInputs in = random_backward_inputs(p, 9);
  const Gradients first = run_backward_cuda(p, in, blocks_of(47, 131));
  EXPECT_TRUE(same_bits(first, run_backward_cuda(p, in, blocks_of(47, 131))));
  std::ranges::reverse(p.tiles);
  EXPECT_TRUE(same_bits(first, run_backward_cuda(p, in, blocks_of(47, 131))));
}

// More than the 2,048 columns of a span, of keys for dq and of queries, of two heads, for dk and dv.
TEST_P(CudaBackward, SpansAddUp) {
  for (const auto& [q_rows, k_rows] : {std::pair<index_t, index_t>{3, 2113}, {1061, 3}}) {
    SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
    const Problem p = problem_of({1, 2, 1, 4, 4}, dtype(), q_rows, k_rows, full_tiles(q_rows, k_rows));
    const BackwardInputs in = random_backward_inputs(p, 12);
    expect_accurate(run_backward_cuda(p, in), p, in);
  }
}

}  // namespace
}  // namespace ringattn::test
