// Random problems against the oracle. Lengths are prime: nothing divides.
#include "tests/kernels/every_isa.h"
#include "tests/kernels/random_tiles.h"

namespace ringattn::test {
namespace {

TEST_P(EveryIsa, EveryHeadDim) {
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
      const Inputs in = random_inputs(p, 11);
      expect_accurate(run_cpu(p, in, GetParam()), p, in);
    }
  }
}

TEST_P(EveryIsa, EveryDtypeMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const DType dtype : kDtypes)
    for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}, {17, 1}})
      for (const auto& tiles : {full_tiles(53, 139), causal_tiles(53, 139), window_tiles(53, 139, 20, 3)}) {
        SCOPED_TRACE(text(dtype) + " heads " + std::to_string(h.q) + "/" + std::to_string(h.kv));
        const Problem p = problem_of({2, h.q, h.kv, 20, 28}, dtype, 53, 139, tiles);
        const Inputs in = random_inputs(p, ++seed);
        expect_accurate(run_cpu(p, in, GetParam()), p, in);
      }
}

TEST_P(EveryIsa, EveryLength) {
  for (const index_t q_rows : {0, 1, 2, 47, 48, 49, 97})
    for (const index_t k_rows : {0, 1, 7, 8, 9, 63, 64, 65, 127})
      for (const auto& tiles : {full_tiles(q_rows, k_rows), causal_tiles(q_rows, k_rows)}) {
        SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(k_rows));
        const Problem p = problem_of({1, 2, 1, 12, 9}, DType::f32, q_rows, k_rows, tiles);
        const Inputs in = random_inputs(p, 7);
        expect_accurate(run_cpu(p, in, GetParam(), {}, 2), p, in);
      }
}

TEST_P(EveryIsa, ManyTilesInAGroup) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const Problem documents =
        problem_of({1, 3, 1, 10, 16}, DType::f32, 151, 151, random_documents(151, seed));
    const Inputs in = random_inputs(documents, seed);
    expect_accurate(run_cpu(documents, in, GetParam(), {}, 2), documents, in);
    const Problem grid = problem_of({1, 3, 1, 10, 16}, DType::f32, 149, 211, random_grid(149, 211, seed));
    const Inputs grid_in = random_inputs(grid, seed);
    expect_accurate(run_cpu(grid, grid_in, GetParam(), blocks_of(73, 211)), grid, grid_in);
  }
}

TEST_P(EveryIsa, TheLastBlockMayWriteTheOutputs) {
  const Blocks blocks = blocks_of(73, 211);
  for (const DType dtype : kDtypes) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(text(dtype) + " seed " + std::to_string(seed));
      // Some rows see nothing of the last block, some nothing at all.
      const Problem p = problem_of({2, 4, 2, 12, 20}, dtype, 149, 211, random_grid(149, 211, seed));
      const Inputs in = random_inputs(p, seed);
      const ConstTensorView q = in.q.view(), k = in.k.view(), v = in.v.view();
      const auto kernel = make_cpu_kernel(config_of(p, GetParam(), 2));
      const Result last = run(*kernel, p, q, k, v, blocks, {}, Ending::last_block);
      const Result after = run(*kernel, p, q, k, v, blocks, {}, Ending::finish);
      EXPECT_TRUE(same_bits(last, after));
      expect_accurate(last, p, in);
    }
  }
}

TEST_P(EveryIsa, BandsBeyond32Bits) {
  const index_t far = 5'000'000'000;  // wraps to a small number in 32 bits
  for (const Band band : {Band{-far, far}, Band{-far, -10}, Band{-10, far}, Band{far, kUnbounded},
                          Band{-kUnbounded, -far}, Band{-kUnbounded, kUnbounded}}) {
    SCOPED_TRACE(std::to_string(band.lo) + " .. " + std::to_string(band.hi));
    const Problem p = problem_of({1, 1, 1, 8, 8}, DType::f32, 101, 103, {{{0, 101}, {0, 103}, band}});
    const Inputs in = random_inputs(p, 3);
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

// Logits of +-300 and more: the running maximum jumps, rows are rescaled often.
TEST_P(EveryIsa, LargeLogits) {
  for (const double deviation : {10.0, 100.0, 1000.0}) {
    const Problem p = problem_of({1, 2, 1, 64, 64}, DType::f32, 67, 307, causal_tiles(67, 307));
    const Inputs in = random_inputs(p, 5, deviation);
    expect_accurate(run_cpu(p, in, GetParam(), blocks_of(64, 307)), p, in);
  }
}

// Scores that rise by more than the lag at every key, and ones that fall: the two extremes of rescaling.
TEST_P(EveryIsa, RisingAndFallingScores) {
  for (const double slope : {20.0, -20.0}) {
    Problem p = problem_of({1, 1, 1, 1, 4}, DType::f32, 50, 130, full_tiles(50, 130));
    p.scale = slope;
    Inputs in{filled(p.dtype, p.q_shape(), 1), key_indices(p.dtype, p.k_shape()),
              random_tensor(p.dtype, p.v_shape(), 8)};
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

TEST_P(EveryIsa, RotationAgainstTheOracle) {
  for (const DType dtype : kDtypes)
    for (const bool interleaved : {false, true})
      for (const index_t dim : {2, 18, 20}) {
        SCOPED_TRACE(text(dtype) + (interleaved ? " interleaved " : " half ") + std::to_string(dim));
        Problem p = problem_of({2, 4, 2, 20, 12}, dtype, 51, 71, causal_tiles(51, 71));
        p.q_rotation = test_rotation(dim, interleaved, 20);
        p.k_rotation = test_rotation(dim, interleaved, 0);
        const Inputs in = random_inputs(p, 21);
        expect_accurate(run_cpu(p, in, GetParam(), blocks_of(40, 71), 2), p, in);
      }
}

}  // namespace
}  // namespace ringattn::test
