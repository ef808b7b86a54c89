// Random problems against the oracle, on every instruction set that this machine runs.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu.h"
#include "tests/kernels/support.h"

namespace ringattn::test {
namespace {

class EveryIsa : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryIsa, testing::ValuesIn(cpu_isas()), [](const auto& i) { return i.param; });

double usual_scale(index_t head_dim) { return 1 / std::sqrt(static_cast<double>(head_dim)); }

Problem problem(HeadShape shape, DType dtype, index_t q_rows, index_t k_rows, std::vector<Tile> tiles) {
  return {.shape = shape,
          .dtype = dtype,
          .q_rows = q_rows,
          .k_rows = k_rows,
          .scale = usual_scale(shape.head_dim),
          .tiles = std::move(tiles),
          .q_rotation = {},
          .k_rotation = {}};
}

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
    const Problem p = problem({1, 1, 1, d.k, d.v}, DType::f32, 101, 131, causal_tiles(101, 131));
    const Inputs in = random_inputs(p, 11);
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

TEST_P(EveryIsa, EveryDtypeMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  unsigned seed = 100;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Heads h : {Heads{3, 1}, {2, 2}, {6, 2}, {17, 1}}) {
      for (const auto& tiles : {full_tiles(53, 139), causal_tiles(53, 139), window_tiles(53, 139, 20, 3)}) {
        SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(dtype)) + " heads " + std::to_string(h.q) +
                     "/" + std::to_string(h.kv));
        const Problem p = problem({2, h.q, h.kv, 20, 28}, dtype, 53, 139, tiles);
        const Inputs in = random_inputs(p, ++seed);
        expect_accurate(run_cpu(p, in, GetParam()), p, in);
      }
    }
}

}  // namespace
}  // namespace ringattn::test
