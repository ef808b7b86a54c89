// The checks of kernels that bench/gpu runs on a GPU, run on the harness: they pass where the kernels are
// right, and fail for each mistake that is planted in one.
#include "bench/gpu/kernel_part.h"

#include <gtest/gtest.h>

#include <sstream>

#include "kernels/cuda/cuda.h"
#include "src/error.h"
#include "tests/bench_gpu/forwarding_kernel.h"

namespace ringattn::acceptance {
namespace {

using test::ForwardingKernel;

// Chapters of this build: it names those that it does not have.
std::vector<std::string> built_chapters() {
  std::vector<std::string> chapters;
  const Stream stream;
  for (const std::string& chapter : chapters_of(90)) {
    try {
      (void)make_cuda_kernel(
          {.shape = {.head_dim = 64, .head_dim_v = 64}, .dtype = DType::bf16, .q_rows = 1, .isa = chapter},
          stream.get());
      chapters.push_back(chapter);
    } catch (const UsageError&) {
    }
  }
  return chapters;
}

// The lines of one problem: forward and backward of the plain chapter.
struct Outcome {
  std::string text;
  int failed, written;
};
Outcome outcome_of(const KernelCase& problem, const std::vector<std::string>& chapters,
                   const MakeKernel& make) {
  std::ostringstream text;
  Lines lines(text);
  check_kernel(problem, chapters, make, lines);
  return {text.str(), lines.failed(), lines.written()};
}
Outcome outcome_of(const KernelCase& problem, const MakeKernel& make) {
  return outcome_of(problem, {"plain"}, make);
}

KernelCase small_case(DType dtype = DType::bf16) {
  return {.name = "small",
          .shape = {.batch = 1, .num_heads = 2, .num_heads_kv = 1, .head_dim = 16, .head_dim_v = 32},
          .dtype = dtype,
          .q_rows = 11,
          .k_rows = 23,
          .tiles = {{{0, 11}, {0, 13}, {.hi = 5}}, {{0, 11}, {13, 23}, {.hi = 12}}},
          .blocks = {{0, 7}, {7, 23}}};
}

template <class Planted>
MakeKernel planted() {
  return [](const KernelConfig& config, void* stream) {
    return std::make_unique<Planted>(make_cuda_kernel(config, stream));
  };
}

TEST(BenchGpuKernels, EveryBuiltChapterPassesEveryTinyCase) {
  std::ostringstream text;
  Lines lines(text);
  const std::vector<std::string> chapters = built_chapters();
  ASSERT_GE(chapters.size(), 1U);
  check_kernels(Extent::tiny, chapters, make_cuda_kernel, lines);
  EXPECT_EQ(lines.failed(), 0) << text.str();
  EXPECT_EQ(lines.written(),
            static_cast<int>(2 * chapters.size() * kernel_cases(Extent::tiny).size()));  // forward, backward
}

TEST(BenchGpuKernels, ARightKernelPasses) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Outcome outcome = outcome_of(small_case(dtype), planted<ForwardingKernel>());
    EXPECT_EQ(outcome.failed, 0) << outcome.text;
    EXPECT_EQ(outcome.written, 2);
  }
}

struct ForgetsATile : ForwardingKernel {
  using ForwardingKernel::ForwardingKernel;
  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    ForwardingKernel::attend(tiles.first(1), block, k_rows, poll);
  }
  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override {
    ForwardingKernel::attend_backward(tiles.first(1), block, k_rows, gradients, poll);
  }
};
TEST(BenchGpuKernels, AForgottenTileFailsBothPasses) {
  const Outcome outcome = outcome_of(small_case(), planted<ForgetsATile>());
  EXPECT_EQ(outcome.failed, 2) << outcome.text;
  EXPECT_NE(outcome.text.find("dk is off by"), std::string::npos) << outcome.text;
}

// One key too many at the end of each row's band.
struct SeesTooFar : ForwardingKernel {
  using ForwardingKernel::ForwardingKernel;
  static std::vector<Tile> widened(std::span<const Tile> tiles) {
    std::vector<Tile> wide(tiles.begin(), tiles.end());
    for (Tile& tile : wide) ++tile.band.hi;
    return wide;
  }
  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    ForwardingKernel::attend(widened(tiles), block, k_rows, poll);
  }
  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override {
    ForwardingKernel::attend_backward(widened(tiles), block, k_rows, gradients, poll);
  }
};
TEST(BenchGpuKernels, AMaskThatIsOneKeyTooWideFailsBothPasses) {
  const Outcome outcome = outcome_of(small_case(), planted<SeesTooFar>());
  EXPECT_EQ(outcome.failed, 2) << outcome.text;
}

struct WritesNoLse : ForwardingKernel {
  using ForwardingKernel::ForwardingKernel;
  void finish(const TensorView& out, const LseView&) override { ForwardingKernel::finish(out, {}); }
};
TEST(BenchGpuKernels, WhatIsNeverWrittenFails) {
  const Outcome outcome = outcome_of(small_case(), planted<WritesNoLse>());
  EXPECT_EQ(outcome.failed, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("never written"), std::string::npos) << outcome.text;
}

// The second run of a kernel leaves dq to the first call's sum: a state that was not cleared.
struct AttendsTheLastBlockTwice : ForwardingKernel {
  using ForwardingKernel::ForwardingKernel;
  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    ForwardingKernel::attend(tiles, block, k_rows, poll);
    if (++calls_ > 2) ForwardingKernel::attend(tiles, block, k_rows, poll);
  }
  int calls_ = 0;
};
TEST(BenchGpuKernels, AnotherSecondRunFails) {
  const Outcome outcome = outcome_of(small_case(), planted<AttendsTheLastBlockTwice>());
  EXPECT_EQ(outcome.failed, 1) << outcome.text;
  EXPECT_NE(outcome.text.find("a second run has other bits"), std::string::npos) << outcome.text;
}

TEST(BenchGpuKernels, ARefusalCountsAsAFailureWhereItIsNotAllowed) {
  const MakeKernel refuses = [](const KernelConfig&, void*) -> std::unique_ptr<Kernel> {
    throw UsageError("isa: 'sm_80' cannot do this");
  };
  EXPECT_EQ(outcome_of(small_case(DType::f32), {"sm_80"}, refuses).failed, 0);
  EXPECT_EQ(outcome_of(small_case(DType::bf16), {"sm_80"}, refuses).failed, 2);
  EXPECT_EQ(outcome_of(small_case(DType::f32), {"plain"}, refuses).failed, 2);
  EXPECT_EQ(outcome_of(small_case(DType::f32), {"auto"}, refuses).failed, 2);
  const MakeKernel breaks = [](const KernelConfig&, void*) -> std::unique_ptr<Kernel> {
    throw DeviceError("out of order");
  };
  EXPECT_EQ(outcome_of(small_case(DType::f32), {"sm_80"}, breaks).failed, 2);
}

TEST(BenchGpuKernels, CasesHaveNamesOfTheirOwnAndTilesThatAreDisjoint) {
  for (const Extent extent : {Extent::tiny, Extent::small, Extent::full}) {
    std::vector<std::string> names;
    for (const KernelCase& p : kernel_cases(extent)) {
      names.push_back(p.name);
      index_t pairs = 0, seen = 0;
      for (const Tile& tile : p.tiles) pairs += visible_pairs(tile);
      for (index_t i = 0; i < p.q_rows; ++i)
        for (index_t j = 0; j < p.k_rows; ++j) seen += p.visible(i, j) ? 1 : 0;
      EXPECT_EQ(pairs, seen) << p.name;
      EXPECT_GT(pairs, 0) << p.name;
      index_t keys = 0;
      for (const Range& block : p.blocks) keys += block.count();
      EXPECT_EQ(keys, p.k_rows) << p.name;
    }
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end()) << *std::ranges::adjacent_find(names);
  }
}

TEST(BenchGpuKernels, ErrorsAreMeasuredAgainstTheBound) {
  const double inf = INFINITY, nan = NAN;
  EXPECT_EQ(error_over_bound({1, 2}, {.values = {1, 2}, .bound = 0}), 0);
  EXPECT_EQ(error_over_bound({1, 2.5}, {.values = {1, 2}, .bound = 0.25}), 2);
  EXPECT_EQ(error_over_bound({nan}, {.values = {1}, .bound = 1}), inf);
  EXPECT_EQ(error_over_bound({inf}, {.values = {1}, .bound = 1}), inf);
  EXPECT_EQ(error_over_bound({1}, {.values = {-inf}, .bound = 1}), inf);
  EXPECT_EQ(error_over_bound({-inf, nan}, {.values = {-inf, nan}, .bound = 1}), 0);
  EXPECT_EQ(error_over_bound({1}, {.values = {1, 1}, .bound = 1}), inf);
}

}  // namespace
}  // namespace ringattn::acceptance
