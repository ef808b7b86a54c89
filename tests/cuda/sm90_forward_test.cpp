// Forward of chapter 3 on the harness: wgmma, TMA and mbarriers, against the oracle. Groups are 128 or 192
// queries, tiles 128 or 64 keys; lengths are prime, so that nothing divides.
#include <gtest/gtest.h>

#include "tests/cuda/support.h"

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

// Every shape that is compiled, filled and with columns to spare.
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
      const Problem p = problem_of({1, 1, 1, d.k, d.v}, dtype, 67, 211, causal_tiles(67, 211));
      const Inputs in = random_inputs(p, 11);
      expect_accurate(run_cuda(p, in), p, in);
    }
}

}  // namespace
}  // namespace ringattn::test
