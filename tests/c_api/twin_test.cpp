// Every field of the C structs arrives: a call through the C interface gives the bits of the same call in
// C++.
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/self.h"
#include "src/attention.h"
#include "tests/c_api/c_objects.h"

namespace ringattn::test {
namespace {

// 17 queries beside 19 keys, 4 query heads on 2 KV heads, head_dim 20 and 12, bf16, partial RoPE, own scale.
constexpr index_t kQ = 17, kK = 19, kHeads = 4, kHeadsKv = 2, kDim = 20, kDimV = 12, kGap = 3;

Problem cplusplus_problem() {
  return {.shape = {.batch = 2,
                    .num_heads = kHeads,
                    .num_heads_kv = kHeadsKv,
                    .head_dim = kDim,
                    .head_dim_v = kDimV},
          .dtype = DType::bf16,
          .mask = Mask::window(kQ, kK, {7, 2}),
          .rope = {.pairing = Rope::Pairing::interleaved, .base = 500, .dim = 8, .position_offset = 1000003},
          .softmax_scale = 0.4};
}

ringattn_problem c_problem() {
  ringattn_problem p = problem_with(kHeads, kHeadsKv, kDim);
  p.batch = 2, p.head_dim_v = kDimV, p.dtype = RINGATTN_BF16;
  p.rope_pairing = RINGATTN_ROPE_INTERLEAVED, p.rope_base = 500, p.rope_dim = 8;
  p.rope_position_offset = 1000003, p.softmax_scale = 0.4;
  return p;
}

// bf16 numbers in memory with a gap after every head, so that a lost stride shows. Values by position: every
// bf16 between 0.5 and 2 of either sign.
struct Padded {
  std::array<index_t, 4> shape, stride;
  std::vector<std::uint16_t> data;

  Padded(index_t rows, index_t heads, index_t dim, unsigned stream) : shape{2, rows, heads, dim} {
    stride = {rows * heads * (dim + kGap), heads * (dim + kGap), dim + kGap, 1};
    data.resize(static_cast<std::size_t>(2 * stride[0]));
    for (std::size_t i = 0; i < data.size(); ++i) {
      const unsigned mixed = (static_cast<unsigned>(i) * 2654435761u + stream * 40503u) >> 7;
      data[i] = static_cast<std::uint16_t>(0x3f00u + mixed % 256u + (mixed & 0x8000u));
    }
  }
  TensorView view() { return {data.data(), DType::bf16, shape, stride}; }
  ringattn_tensor c_view() {
    ringattn_tensor t{.data = data.data(), .dtype = RINGATTN_BF16, .shape = {}, .stride = {}};
    std::copy(shape.begin(), shape.end(), t.shape);
    std::copy(stride.begin(), stride.end(), t.stride);
    return t;
  }
};

struct Tensors {
  Padded q{kQ, kHeads, kDim, 0}, k{kK, kHeadsKv, kDim, 1}, v{kK, kHeadsKv, kDimV, 2};
  Padded out{kQ, kHeads, kDimV, 3}, dout{kQ, kHeads, kDimV, 4};
  Padded dq{kQ, kHeads, kDim, 5}, dk{kK, kHeadsKv, kDim, 6}, dv{kK, kHeadsKv, kDimV, 7};
  std::vector<float> lse = std::vector<float>(2 * kHeads * kQ, -3.0f);
  std::vector<index_t> q_positions = std::vector<index_t>(kQ), k_positions = std::vector<index_t>(kK);

  Tensors() {
    for (std::size_t i = 0; i < q_positions.size(); ++i) q_positions[i] = static_cast<index_t>(5 * i + 1);
    for (std::size_t i = 0; i < k_positions.size(); ++i) k_positions[i] = static_cast<index_t>(3 * i);
  }
};

void run_cplusplus(Tensors& t, bool own_positions) {
  RingAttention ring(make_self_communicator(), cplusplus_problem(),
                     Sharding::make(LayoutKind::striped, kQ, kK, 1), {.threads = 1});
  Positions positions;
  if (own_positions) positions = {.q = t.q_positions, .k = t.k_positions};
  const LseView lse = dense_lse(t.lse.data(), 2, kHeads, kQ);
  ring.forward(as_const(t.q.view()), as_const(t.k.view()), as_const(t.v.view()), t.out.view(), lse,
               positions);
  ring.backward({.dout = as_const(t.dout.view()),
                 .q = as_const(t.q.view()),
                 .k = as_const(t.k.view()),
                 .v = as_const(t.v.view()),
                 .out = as_const(t.out.view()),
                 .lse = as_const(lse)},
                {.dq = t.dq.view(), .dk = t.dk.view(), .dv = t.dv.view()}, positions);
}

void run_c(Tensors& t, bool own_positions) {
  const Comm comm = made<Comm>(ringattn_comm_create_self);
  const MaskHandle mask = made<MaskHandle>(ringattn_mask_create_window, kQ, kK, 7, 2);
  const LayoutHandle layout = made<LayoutHandle>(ringattn_layout_create, RINGATTN_STRIPED, kQ, kK, 1);
  const ringattn_problem problem = c_problem();
  const ringattn_options options = options_with(1, 5000);
  const Attention attention =
      made<Attention>(ringattn_attention_create, comm.get(), &problem, mask.get(), layout.get(), &options);
  ringattn_forward_args f;
  ringattn_backward_args b;
  ASSERT_TRUE(ok(ringattn_forward_args_init(&f, sizeof f)));
  ASSERT_TRUE(ok(ringattn_backward_args_init(&b, sizeof b)));
  if (own_positions) {
    f.q_positions = b.q_positions = t.q_positions.data();
    f.k_positions = b.k_positions = t.k_positions.data();
  }
  b.q = f.q = t.q.c_view(), b.k = f.k = t.k.c_view(), b.v = f.v = t.v.c_view();
  b.out = f.out = t.out.c_view(), b.dout = t.dout.c_view();
  b.lse = f.lse = ringattn_lse_dense(t.lse.data(), 2, kHeads, kQ);
  b.dq = t.dq.c_view(), b.dk = t.dk.c_view(), b.dv = t.dv.c_view();
  ASSERT_TRUE(ok(ringattn_forward(attention.get(), &f)));
  ASSERT_TRUE(ok(ringattn_backward(attention.get(), &b)));
}

TEST(CTwin, a_call_gives_the_bits_of_the_same_call_in_cplusplus) {
  std::vector<std::uint16_t> without_positions;
  for (const bool own_positions : {false, true}) {
    const Tensors before;
    Tensors a, b;
    run_cplusplus(a, own_positions);
    run_c(b, own_positions);
    EXPECT_EQ(a.out.data, b.out.data);  // the gaps between heads included: nobody wrote there
    EXPECT_EQ(a.dq.data, b.dq.data);
    EXPECT_EQ(a.dk.data, b.dk.data);
    EXPECT_EQ(a.dv.data, b.dv.data);
    EXPECT_EQ(a.lse, b.lse);
    EXPECT_EQ(b.q.data, before.q.data);  // inputs are only read
    EXPECT_EQ(b.dout.data, before.dout.data);
    EXPECT_NE(b.dk.data, before.dk.data);
    EXPECT_NE(b.out.data, without_positions);  // positions were not ignored
    without_positions = b.out.data;
  }
}

}  // namespace
}  // namespace ringattn::test
