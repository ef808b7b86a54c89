// Instructions of ptx.h against a plain description of what they do.
#include "kernels/cuda/ptx.h"

#include <gtest/gtest.h>

#include "tests/simt/run_kernel.h"

namespace ringattn {
namespace {

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int sum = lane;
  for (int d = 16; d > 0; d /= 2) sum += ptx::shuffle_xor(sum, d);
  ptx::store_global(out + threadIdx.x, sum * 100 + ptx::shuffle(lane, 7));
}

TEST(Ptx, ShufflesReachEveryLaneOfTheirWarp) {
  const simt::DeviceArray<int> out(96);
  simt::run_block(shuffles, 96, 0, out.data());
  for (const int x : out.host()) EXPECT_EQ(x, 49607);  // 0 + ... + 31 = 496
}

}  // namespace
}  // namespace ringattn
