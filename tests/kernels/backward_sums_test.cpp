// Long sums keep what is small beside what is large; views with any strides; misuse is refused.
#include <cmath>
#include <vector>

#include "src/error.h"
#include "tests/kernels/backward_support.h"
#include "tests/kernels/every_isa.h"

namespace ringattn::test {
namespace {

double relative_error(const Tensor& ours, const std::vector<double>& truth) {
  return largest_error(ours.doubles(), truth) / largest(truth);
}

// Half of the keys, at one end, have nearly all the weight, the others 4.5e-5 of it between them: the
// backward side of Forward.a_heavy_first_block_does_not_drown_many_light_keys. In column 1 of dq the heavy
// keys add up to 4, and each light one adds 2.2e-7, less than half an ulp of that: one fp32 sum would lose
// 2e-4 of it. Values alternate so that delta is 0; what is left is the rounding of lse, 18.3 * 2^-24
// = 1.1e-6.
TEST_P(EveryIsa, HeavyKeysDoNotDrownManyLightOnes) {
  const index_t queries = 48, keys = 8192;
  for (const bool heavy_at_end : {true, false}) {
    Problem p = problem_of({1, 1, 1, 4, 4}, DType::f32, queries, keys, full_tiles(queries, keys));
    p.scale = 1;
    Inputs in{filled(p.dtype, p.q_shape(), 0), filled(p.dtype, p.k_shape(), 0),
              filled(p.dtype, p.v_shape(), 0)};
    for (index_t i = 0; i < queries; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
    for (index_t j = 0; j < keys; ++j) {
      const bool heavy = (j >= keys / 2) == heavy_at_end;
      const double sign = j % 2 == 0 ? 1 : -1;
      in.k.set(in.k.index(0, j, 0, 0), heavy ? 10 : 0);
      in.k.set(in.k.index(0, j, 0, 1), sign * (heavy ? 1 : 5));
      for (index_t e = 0; e < 4; ++e) in.v.set(in.v.index(0, j, 0, e), sign * (heavy ? 1 : 4));
    }
    const BackwardInputs all = backward_inputs(p, in, filled(p.dtype, p.out_shape(), 1));
    const ReferenceGradients truth = gradient_oracle(p, all);
    EXPECT_NEAR(truth.dq[1], 4, 4e-3);
    for (const Blocks& blocks : {Blocks{}, blocks_of(2048, keys), blocks_of(500, keys)})
      EXPECT_LE(relative_error(run_backward_cpu(p, all, GetParam(), blocks).dq, truth.dq), 3e-6)
          << "heavy end " << heavy_at_end;
  }
}

// 48 queries at one end have a large dout, 12,288 others a small one: each adds less than half an ulp of the
// sum of the large ones to dv, and one fp32 sum would lose 4.7e-4 of it, 12,288 * 0.011 of 48 * 6000. Three
// levels make at most 48 + 43 + 6 roundings of 2^-24.
TEST_P(EveryIsa, HeavyQueriesDoNotDrownManyLightOnes) {
  const index_t queries = 48 * 257, keys = 16;
  for (const bool heavy_at_end : {true, false}) {
    Problem p = problem_of({1, 1, 1, 4, 4}, DType::f32, queries, keys, full_tiles(queries, keys));
    p.scale = 0.01;
    Inputs in = random_inputs(p, 9);
    for (index_t i = 0; i < queries; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
    Tensor dout = random_tensor(p.dtype, p.out_shape(), 4, 0.01);
    for (index_t i = 0; i < queries; ++i)
      for (index_t e = 0; e < 4; ++e) {
        const bool heavy = heavy_at_end ? i >= queries - 48 : i < 48;
        dout.set(dout.index(0, i, 0, e), heavy ? 6000 : 0.011);
      }
    const BackwardInputs all = backward_inputs(p, in, dout);
    const ReferenceGradients truth = gradient_oracle(p, all);
    const Gradients got = run_backward_cpu(p, all, GetParam());
    EXPECT_LE(relative_error(got.dv, truth.dv), 97 * 0x1p-24) << "heavy end " << heavy_at_end;
    EXPECT_LE(relative_error(got.dk, truth.dk), 97 * 0x1p-24) << "heavy end " << heavy_at_end;
  }
}

// Rows with gaps, heads before rows, and a dout that is one number for all (strides 0).
TEST_P(EveryIsa, BackwardReadsAndWritesAnyStrides) {
  for (const DType dtype : kDtypes) {
    const Problem p = problem_of({2, 4, 2, 20, 20}, dtype, 53, 71, causal_tiles(53, 71));
    BackwardInputs in = random_backward_inputs(p, 8);
    in.dout = filled(dtype, p.out_shape(), 0.75);
    const auto kernel = make_cpu_kernel(config_of(p, GetParam(), 2));
    const Gradients dense = run_backward(*kernel, p, in);

    const std::size_t size = size_of(dtype);
    const auto strides = [](std::array<index_t, 4> s) {  // [batch][head][row][dim + 3]
      return std::array<index_t, 4>{s[2] * s[1] * (s[3] + 3), s[3] + 3, s[1] * (s[3] + 3), 1};
    };
    const auto spread = [&](const Tensor& t, std::vector<std::byte>& memory) {
      memory.assign(static_cast<std::size_t>(t.shape[0] * t.shape[1] * t.shape[2] * (t.shape[3] + 3)) * size,
                    std::byte{0xFF});
      const TensorView view{memory.data(), dtype, t.shape, strides(t.shape)};
      for (index_t b = 0; b < t.shape[0]; ++b)
        for (index_t i = 0; i < t.shape[1]; ++i)
          for (index_t h = 0; h < t.shape[2]; ++h)
            std::copy_n(&t.bytes[t.index(b, i, h, 0) * size], static_cast<std::size_t>(t.shape[3]) * size,
                        &memory[static_cast<std::size_t>(view.offset(b, i, h)) * size]);
      return view;
    };
    std::vector<std::byte> q, k, v, out, dq, dk, dv;
    std::vector<std::byte> one(in.dout.bytes.begin(), in.dout.bytes.begin() + 20 * static_cast<int>(size));
    const HeadShape& s = p.shape;
    const ConstLseView lse{in.lse.data(), {2, 4, 53}, {4 * 53, 53, 1}};
    kernel->load_rows(as_const(spread(in.q, q)), {}, {one.data(), dtype, p.out_shape(), {0, 0, 0, 1}},
                      as_const(spread(in.out, out)), lse, {});
    const Buffer block = kernel->allocate(kernel->block_bytes(71)),
                 sums = kernel->allocate(kernel->gradient_bytes(71));
    kernel->load_block(as_const(spread(in.k, k)), as_const(spread(in.v, v)), {}, block.bytes());
    kernel->attend_backward(p.tiles, block.bytes(), 71, {.bytes = sums.bytes()}, {});
    // Written over the poison of `spread`, and nothing between the rows.
    const TensorView dq_view = spread(in.q, dq), dk_view = spread(in.k, dk), dv_view = spread(in.v, dv);
    kernel->finish_rows(dq_view, {});
    kernel->finish_gradients(sums.bytes(), dk_view, dv_view, {});
    std::vector<std::byte> expected;
    spread(dense.dq, expected);
    EXPECT_EQ(dq, expected);
    spread(dense.dk, expected);
    EXPECT_EQ(dk, expected);
    spread(dense.dv, expected);
    EXPECT_EQ(dv, expected);
    EXPECT_EQ(s.group(), 2);
  }
}

TEST(Backward, RefusesWhatItCannotDo) {
  const Problem p = problem_of({1, 1, 1, 8, 8}, DType::f32, 5, 7, full_tiles(5, 7));
  const BackwardInputs in = random_backward_inputs(p, 1);
  const auto kernel = make_cpu_kernel(config_of(p));
  const ConstLseView lse{in.lse.data(), {1, 1, 5}, {5, 5, 1}};
  const Buffer block = kernel->allocate(kernel->block_bytes(7)),
               sums = kernel->allocate(kernel->gradient_bytes(7));
  const auto load = [&](const ConstTensorView& q, const ConstTensorView& dout, const ConstTensorView& out,
                        const ConstLseView& l) { kernel->load_rows(q, {}, dout, out, l, {}); };
  const auto attend = [&](std::span<std::byte> bytes, std::vector<Tile> tiles) {
    kernel->attend_backward(tiles, block.bytes(), 7, {.bytes = bytes}, {});
  };
  Gradients g{Tensor(p.dtype, p.q_shape()), Tensor(p.dtype, p.k_shape()), Tensor(p.dtype, p.v_shape())};
  // Before reserve().
  EXPECT_THROW(load(in.q.view(), in.dout.view(), in.out.view(), lse), UsageError);
  EXPECT_THROW(attend(sums.bytes(), p.tiles), UsageError);
  EXPECT_THROW(kernel->finish_rows(g.dq.view(), {}), UsageError);
  kernel->reserve(Pass::backward);
  EXPECT_NO_THROW(load(in.q.view(), in.dout.view(), in.out.view(), lse));
  EXPECT_THROW(load(in.k.view(), in.dout.view(), in.out.view(), lse), UsageError);
  EXPECT_THROW(load(in.q.view(), in.v.view(), in.out.view(), lse), UsageError);
  EXPECT_THROW(load(in.q.view(), in.dout.view(), in.v.view(), lse), UsageError);
  EXPECT_THROW(load(in.q.view(), in.dout.view(), in.out.view(), {in.lse.data(), {1, 5, 1}, {5, 1, 1}}),
               UsageError);
  EXPECT_THROW(load(in.q.view(), in.dout.view(), in.out.view(), {nullptr, {1, 1, 5}, {5, 5, 1}}), UsageError);
  EXPECT_THROW(attend(sums.bytes().first(64), p.tiles), UsageError);
  EXPECT_THROW(attend(sums.bytes(), full_tiles(5, 8)), UsageError);
  EXPECT_THROW(kernel->finish_rows(g.dk.view(), {}), UsageError);
  EXPECT_THROW(kernel->finish_gradients(sums.bytes(), g.dq.view(), g.dv.view(), {}), UsageError);
  EXPECT_THROW(kernel->finish_gradients(sums.bytes().first(64), g.dk.view(), g.dv.view(), {}), UsageError);
}

TEST(Backward, RefusesSizesThatCannotBeHeld) {
  KernelConfig config{.shape = {1, 1, 1, 1, 1}, .q_rows = index_t{1} << 59, .threads = 1};
  EXPECT_THROW(cpu_workspace_bytes(config, Pass::backward), OutOfMemory);
  EXPECT_THROW(cpu_gradient_bytes(config.shape, index_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace ringattn::test
