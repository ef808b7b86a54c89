// Backward of random problems against the oracle. Lengths are prime: nothing divides.
#include "tests/kernels/backward_support.h"
#include "tests/kernels/every_isa.h"
#include "tests/kernels/random_tiles.h"

namespace ringattn::test {
namespace {

TEST_P(EveryIsa, BackwardOfEveryHeadDim) {
  struct Dims {
    index_t k, v;
  };
  for (const Dims d : {Dims{1, 1},
                       {7, 7},
                       {20, 20},
                       {63, 63},
                       {64, 64},
                       {80, 80},
                       {100, 100},
                       {128, 128},
                       {256, 256},
                       {512, 512},
                       {192, 128},
                       {64, 3},
                       {5, 41}}) {
    SCOPED_TRACE("head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
    for (const DType dtype : kDtypes) {
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, dtype, 61, 131, causal_tiles(61, 131));
      const BackwardInputs in = random_backward_inputs(p, 11);
      expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
    }
  }
}

TEST_P(EveryIsa, BackwardOfEveryDtypeMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const DType dtype : kDtypes)
    for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}, {17, 1}})
      for (const auto& tiles : {full_tiles(53, 139), causal_tiles(53, 139), window_tiles(53, 139, 20, 3)}) {
        SCOPED_TRACE(text(dtype) + " heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
        const Problem p = problem_of({2, h.q, h.kv, 20, 28}, dtype, 53, 139, tiles);
        const BackwardInputs in = random_backward_inputs(p, ++seed);
        expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
      }
}

// Around the sizes of a vector, a panel, a group, a block of 64 keys and a task of 256.
TEST_P(EveryIsa, BackwardOfEveryLength) {
  for (const index_t q_rows : {0, 1, 2, 47, 48, 49, 97})
    for (const index_t k_rows : {0, 1, 7, 8, 9, 63, 64, 65, 127, 255, 256, 257})
      for (const auto& tiles : {full_tiles(q_rows, k_rows), causal_tiles(q_rows, k_rows)}) {
        SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
        const Problem p = problem_of({1, 2, 1, 12, 9}, DType::f32, q_rows, k_rows, tiles);
        const BackwardInputs in = random_backward_inputs(p, 7);
        expect_accurate(run_backward_cpu(p, in, GetParam(), {}, 2), p, in);
      }
}

TEST_P(EveryIsa, BackwardOfManyTilesInAGroup) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const Problem documents =
        problem_of({1, 3, 1, 10, 16}, DType::f32, 151, 151, random_documents(151, seed));
    const BackwardInputs in = random_backward_inputs(documents, seed);
    expect_accurate(run_backward_cpu(documents, in, GetParam(), {}, 2), documents, in);
    const Problem grid = problem_of({1, 3, 1, 10, 16}, DType::f32, 149, 307, random_grid(149, 307, seed));
    const BackwardInputs grid_in = random_backward_inputs(grid, seed);
    expect_accurate(run_backward_cpu(grid, grid_in, GetParam()), grid, grid_in);
    expect_accurate(run_backward_cpu(grid, grid_in, GetParam(), blocks_of(73, 307), 2), grid, grid_in);
  }
}

TEST_P(EveryIsa, BackwardOfBandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 8, 8}, DType::f32, 101, 103, {{{0, 101}, {0, 103}, band}});
    const BackwardInputs in = random_backward_inputs(p, 3);
    expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
  }
}

// Narrow bands at every offset from the register tiles.
TEST_P(EveryIsa, BackwardOfNarrowBands) {
  for (index_t lo = -60; lo <= 60; lo += 7)
    for (const index_t width : {0, 1, 9, 30}) {
      SCOPED_TRACE(std::to_string(lo) + " + " + std::to_string(width));
      const Problem p =
          problem_of({1, 1, 1, 8, 8}, DType::f32, 89, 97, {{{3, 86}, {5, 93}, {lo, lo + width}}});
      const BackwardInputs in = random_backward_inputs(p, 3);
      expect_accurate(run_backward_cpu(p, in, GetParam()), p, in);
    }
}

TEST_P(EveryIsa, BackwardOfLargeLogits) {
  for (const double deviation : {10.0, 100.0}) {
    const Problem p = problem_of({1, 2, 1, 64, 64}, DType::f32, 67, 307, causal_tiles(67, 307));
    const BackwardInputs in = random_backward_inputs(p, 5, deviation);
    expect_accurate(run_backward_cpu(p, in, GetParam(), blocks_of(64, 307)), p, in);
  }
}

// Negative scales turn the order of the keys round; with scale 0 every key has the same weight and neither dq
// nor dk is anything but 0 (case A40). 3e-39 is below the smallest normal fp32.
TEST_P(EveryIsa, BackwardOfEveryScale) {
  for (const double scale : {-0.3, -1.0, 0.0, 3.7, 3e-39}) {
    SCOPED_TRACE(scale);
    Problem p = problem_of({1, 2, 1, 12, 20}, DType::f32, 59, 131, causal_tiles(59, 131));
    p.scale = scale;
    const BackwardInputs in = random_backward_inputs(p, 6);
    const Gradients got = run_backward_cpu(p, in, GetParam());
    expect_accurate(got, p, in);
    if (scale == 0) {
      EXPECT_EQ(largest(got.dq.doubles()), 0.0);
      EXPECT_EQ(largest(got.dk.doubles()), 0.0);
    }
  }
}

TEST_P(EveryIsa, GradientsAreTurnedBack) {
  for (const DType dtype : kDtypes)
    for (const bool interleaved : {false, true})
      for (const index_t dim : {2, 18, 20}) {
        SCOPED_TRACE(text(dtype) + (interleaved ? " interleaved " : " half ") + std::to_string(dim));
        Problem p = problem_of({2, 4, 2, 20, 12}, dtype, 51, 71, causal_tiles(51, 71));
        p.q_rotation = test_rotation(dim, interleaved, 20);
        p.k_rotation = test_rotation(dim, interleaved, 0);
        const BackwardInputs in = random_backward_inputs(p, 21);
        expect_accurate(run_backward_cpu(p, in, GetParam(), blocks_of(40, 71), 2), p, in);
      }
}

}  // namespace
}  // namespace ringattn::test
