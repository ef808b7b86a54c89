// What is particular to the tensor cores' chapter: sizes around its tiles, bank conflicts, the choice of
// chapter. What every chapter must do is asked in the other files.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/error.h"
#include "tests/cuda/support.h"
#include "tests/simt/config.h"
#include "tests/simt/stats.h"

namespace ringattn::test {
namespace {

constexpr const char* kIsa = "sm_80";

struct Size {
  index_t q_rows, k_rows;
};
struct Dims {
  index_t k, v;
};
// Of each kind of tile: 64 columns; 32 columns; head_dim unlike head_dim_v; 64 rows. None fills its tile.
constexpr Dims kDims[] = {{20, 12}, {113, 120}, {180, 121}, {200, 129}};

std::string text(const Size& size, const Dims& dims) {
  return std::to_string(size.q_rows) + " x " + std::to_string(size.k_rows) + ", head_dim " +
         std::to_string(dims.k) + ", " + std::to_string(dims.v);
}

TEST(CudaSm80, ForwardAroundTheSizesOfTiles) {
  for (const Dims d : kDims)
    for (const Size size : {Size{129, 65}, {128, 64}, {63, 97}, {65, 31}, {131, 193}}) {
      SCOPED_TRACE(text(size, d));
      const Problem p = problem_of({1, 2, 1, d.k, d.v}, DType::bf16, size.q_rows, size.k_rows,
                                   causal_tiles(size.q_rows, size.k_rows));
      const Inputs in = random_inputs(p, 41);
      expect_accurate(run_cuda(kIsa, p, in, blocks_of(101, size.k_rows)), p, in);
    }
}

TEST(CudaSm80, BackwardAroundTheSizesOfTiles) {
  for (const Dims d : kDims)
    for (const Size size : {Size{65, 67}, {64, 64}, {33, 131}}) {
      SCOPED_TRACE(text(size, d));
      const Problem p = problem_of({1, 2, 1, d.k, d.v}, DType::bf16, size.q_rows, size.k_rows,
                                   causal_tiles(size.q_rows, size.k_rows));
      const BackwardInputs in = random_backward_inputs(p, 42);
      expect_accurate(run_backward_cuda(kIsa, p, in, blocks_of(67, size.k_rows)), p, in);
    }
}

TEST(CudaSm80, MasksOverManyTiles) {
  const index_t rows = 211;
  for (const auto& tiles :
       {window_tiles(rows, rows, 70, 9), random_documents(rows, 5), random_grid(rows, rows, 6)}) {
    const Problem p = problem_of({1, 2, 1, 24, 40}, DType::f16, rows, rows, tiles);
    const BackwardInputs in = random_backward_inputs(p, 43);
    const Inputs forward{in.q, in.k, in.v};
    expect_accurate(run_cuda(kIsa, p, forward), p, forward);
    expect_accurate(run_backward_cuda(kIsa, p, in), p, in);
  }
}

// A swizzle that is missing on both sides gives right numbers and shows only here.
TEST(CudaSm80, NoBankConflicts) {
  for (const Dims d : {Dims{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}}) {
    SCOPED_TRACE("head_dim " + std::to_string(d.k) + ", " + std::to_string(d.v));
    const Problem p = problem_of({1, 1, 1, d.k, d.v}, DType::bf16, 64, 128, full_tiles(64, 128));
    const BackwardInputs in = random_backward_inputs(p, 46);
    simt::stats().reset();
    run_cuda(kIsa, p, {in.q, in.k, in.v});
    EXPECT_GT(simt::stats().ldmatrix_phases, 0u);
    EXPECT_EQ(simt::stats().bank_conflicts, 0u);
    simt::stats().reset();
    run_backward_cuda(kIsa, p, in);
    EXPECT_GT(simt::stats().ldmatrix_phases, 0u);
    EXPECT_EQ(simt::stats().bank_conflicts, 0u);
  }
}

// In a window the number of products does not grow with that of the keys.
TEST(CudaSm80, HiddenTilesAreSkipped) {
  const auto products = [](index_t k_rows) {
    const Problem p = problem_of({1, 1, 1, 64, 64}, DType::bf16, 64, k_rows, window_tiles(64, k_rows, 64, 0));
    const Inputs in = random_inputs(p, 47);
    simt::stats().reset();
    run_cuda(kIsa, p, in);
    return simt::stats().mma.load();
  };
  EXPECT_EQ(products(512), products(1024));
}

// NaN in one key's value or one query, among several tiles: who sees it has it, who does not keeps his bits.
TEST(CudaSm80, NanAmongManyTiles) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const index_t rows = 197;
  const Problem p = problem_of({1, 1, 1, 20, 20}, DType::bf16, rows, rows, causal_tiles(rows, rows));
  const BackwardInputs in = random_backward_inputs(p, 48);
  const Inputs forward{in.q, in.k, in.v};
  const Result clean = run_cuda(kIsa, p, forward);
  const Gradients clean_gradients = run_backward_cuda(kIsa, p, in);
  for (const index_t j : {0, 63, 64, 130, 196}) {
    SCOPED_TRACE(j);
    Inputs bad = forward;
    bad.v.set(bad.v.index(0, j, 0, 7), nan);
    const Result dirty = run_cuda(kIsa, p, bad);
    for (std::size_t i = 0; i < clean.out.size(); ++i) {
      if (static_cast<index_t>(i) / 20 >= j && i % 20 == 7)
        ASSERT_TRUE(std::isnan(dirty.out.get(i))) << i;
      else
        ASSERT_EQ(dirty.out.get(i), clean.out.get(i)) << i;
    }
    BackwardInputs bad_rows = in;
    bad_rows.dout.set(bad_rows.dout.index(0, j, 0, 7), nan);
    const Gradients gradients = run_backward_cuda(kIsa, p, bad_rows);
    for (std::size_t i = 0; i < gradients.dv.size(); ++i) {
      const index_t row = static_cast<index_t>(i) / 20;
      if (row <= j && i % 20 == 7)
        ASSERT_TRUE(std::isnan(gradients.dv.get(i))) << i;
      else
        ASSERT_EQ(gradients.dv.get(i), clean_gradients.dv.get(i)) << i;
      ASSERT_EQ(std::isnan(gradients.dk.get(i)), row <= j) << i;
      ASSERT_EQ(std::isnan(gradients.dq.get(i)), row == j) << i;
    }
  }
}

TEST(CudaSm80, FreshGradientsMayHoldAnything) {
  const Problem p = problem_of({1, 2, 1, 20, 12}, DType::bf16, 67, 71, window_tiles(67, 71, 20, 3));
  const BackwardInputs in = random_backward_inputs(p, 49);
  EXPECT_TRUE(same_bits(run_backward_cuda(kIsa, p, in, blocks_of(40, 71)),
                        run_backward_cuda(kIsa, p, in, blocks_of(40, 71), First::fresh)));
}

class ChoiceOfChapter : public ::testing::Test {
 protected:
  ~ChoiceOfChapter() override { simt::config() = before_; }

  std::string chosen(DType dtype, index_t dim, const std::string& isa, int capability) {
    simt::config().compute_capability = capability;
    return cuda_kernel(problem_of({1, 1, 1, dim, dim}, dtype, 3, 5, {}), stream_, isa)->name();
  }
  template <class Error>
  void expect_refused(DType dtype, index_t dim, const std::string& isa, int capability,
                      const std::string& words) {
    try {
      ADD_FAILURE() << chosen(dtype, dim, isa, capability);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }

 private:
  DeviceStream stream_;
  simt::Config before_ = simt::config();
};

TEST_F(ChoiceOfChapter, AutoIsTheFastestThatCan) {
  EXPECT_EQ(chosen(DType::bf16, 128, "auto", 80), "cuda/sm_80");
  EXPECT_EQ(chosen(DType::f16, 256, "auto", 89), "cuda/sm_80");
  EXPECT_EQ(chosen(DType::f16, 257, "auto", 80), "cuda/plain");
  EXPECT_EQ(chosen(DType::f32, 128, "auto", 80), "cuda/plain");
  EXPECT_EQ(chosen(DType::bf16, 128, "auto", 75), "cuda/plain");
  EXPECT_EQ(chosen(DType::bf16, 128, "plain", 90), "cuda/plain");
  EXPECT_EQ(chosen(DType::bf16, 128, "sm_80", 120), "cuda/sm_80");
}

TEST_F(ChoiceOfChapter, WhatAChapterCannotDoIsRefusedByName) {
  expect_refused<UsageError>(DType::f32, 64, "sm_80", 80, "isa: 'sm_80' cannot do this: dtype is f32");
  expect_refused<UsageError>(DType::bf16, 257, "sm_80", 80, "head_dim is 257");
  expect_refused<DeviceError>(DType::bf16, 64, "sm_80", 75, "compute capability is 7.5");
  expect_refused<UsageError>(DType::bf16, 64, "sm_70", 80, "isa: 'sm_70'");
}

}  // namespace
}  // namespace ringattn::test
