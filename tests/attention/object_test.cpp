// RingAttention as an object: what it refuses and how, what it leaves alone, what it does not remember.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/faulty.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/stream.h"
#include "src/cost.h"
#include "src/error.h"
#include "tests/support/mask_formula.h"

#include "tests/support/ring_case.h"

namespace ringattn::test {
namespace {

using namespace std::chrono_literals;

Problem causal_problem(index_t length, index_t heads = 2, index_t kv_heads = 1, index_t dim = 8) {
  return {.shape = {.num_heads = heads, .num_heads_kv = kv_heads, .head_dim = dim},
          .mask = Mask::causal(length, length)};
}

// The error text of every rank; "" where a rank did not throw an Error.
template <class Error>
std::vector<std::string> errors_of(int ranks,
                                   const std::function<void(std::shared_ptr<Communicator>)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
    try {
      body(comm);
    } catch (const Error& e) {
      texts[static_cast<std::size_t>(comm->rank())] = e.what();
    }
  });
  return texts;
}

// One rank's local tensors, f32, for calls that go wrong or are looked at closely.
struct Local {
  std::vector<float> q, k, v, out, lse;
  ConstTensorView q_view, k_view, v_view;
  TensorView out_view;
  LseView lse_view;

  explicit Local(const RingAttention& ring) {
    const HeadShape s = ring.problem().heads();
    const index_t q_rows = ring.plan().q_rows(), k_rows = ring.plan().k_rows();
    const auto make = [](std::vector<float>& x, const std::array<index_t, 4>& shape, unsigned stream) {
      x.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>((i * 37 + stream * 11) % 64) / 64.f - 0.5f;
      return dense_view(x.data(), DType::f32, shape);
    };
    q_view = as_const(make(q, {s.batch, q_rows, s.num_heads, s.head_dim}, 0));
    k_view = as_const(make(k, {s.batch, k_rows, s.num_heads_kv, s.head_dim}, 1));
    v_view = as_const(make(v, {s.batch, k_rows, s.num_heads_kv, s.head_dim_v}, 2));
    out_view = make(out, {s.batch, q_rows, s.num_heads, s.head_dim_v}, 3);
    lse.resize(static_cast<std::size_t>(s.batch * s.num_heads * q_rows));
    lse_view = dense_lse(lse.data(), s.batch, s.num_heads, q_rows);
  }
};

RingAttention zigzag_ring(const std::shared_ptr<Communicator>& comm, const Problem& problem,
                          RingOptions options = {}) {
  options.threads = 1;
  return {comm, problem,
          Sharding::make(LayoutKind::zigzag, problem.seqlen_q(), problem.seqlen_k(), comm->size()), options};
}

TEST(Object, ranks_that_disagree_all_throw_the_same_line) {
  const auto texts = errors_of<UsageError>(4, [](const std::shared_ptr<Communicator>& comm) {
    zigzag_ring(comm, causal_problem(comm->rank() == 3 ? 64 : 32));
  });
  for (const auto& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_NE(texts[0].find("rank 3: seqlen_q 64, others 32"), std::string::npos) << texts[0];
}

TEST(Object, every_field_of_the_problem_is_compared) {
  const Problem base{.shape = {.batch = 1, .num_heads = 4, .num_heads_kv = 2, .head_dim = 8},
                     .mask = Mask::causal(32, 32),
                     .rope = {.pairing = Rope::Pairing::half}};
  const std::pair<const char*, std::function<void(Problem&)>> changes[] = {
      {"batch", [](Problem& p) { p.shape.batch = 2; }},
      {"num_heads", [](Problem& p) { p.shape.num_heads = 8; }},
      {"num_heads_kv", [](Problem& p) { p.shape.num_heads_kv = 4; }},
      {"head_dim", [](Problem& p) { p.shape.head_dim = 10; }},
      {"head_dim_v", [](Problem& p) { p.shape.head_dim_v = 6; }},
      {"dtype", [](Problem& p) { p.dtype = DType::bf16; }},
      {"mask", [](Problem& p) { p.mask = Mask::full(32, 32); }},
      {"mask",
       [](Problem& p) {
         p.mask = Mask::window(32, 32, {3, 0});
       }},
      {"seqlen_k", [](Problem& p) { p.mask = Mask::causal(32, 40); }},
      {"softmax_scale", [](Problem& p) { p.softmax_scale = 0.5; }},
      {"rope", [](Problem& p) { p.rope.pairing = Rope::Pairing::interleaved; }},
      {"rope", [](Problem& p) { p.rope.position_offset = 3; }},
      {"rope", [](Problem& p) { p.rope.base = 500000; }},
      {"rope", [](Problem& p) { p.rope.dim = 4; }},
  };
  for (const auto& entry : changes) {
    const std::string name = entry.first;
    const auto texts = errors_of<UsageError>(3, [&](const std::shared_ptr<Communicator>& comm) {
      Problem mine = base;
      if (comm->rank() == 1) entry.second(mine);
      zigzag_ring(comm, mine);
    });
    for (const auto& text : texts) {
      EXPECT_NE(text.find("rank 1: "), std::string::npos) << name << ": " << text;
      EXPECT_NE(text.find(name), std::string::npos) << name << ": " << text;
    }
  }
}

TEST(Object, a_different_layout_on_one_rank_is_an_error_of_all) {
  const auto texts = errors_of<UsageError>(3, [](const std::shared_ptr<Communicator>& comm) {
    const auto kind = comm->rank() == 2 ? LayoutKind::striped : LayoutKind::contiguous;
    RingAttention(comm, causal_problem(31), Sharding::make(kind, 31, 31, 3), {.threads = 1});
  });
  for (const auto& text : texts)
    EXPECT_NE(text.find("rank 2: layout_q striped, others contiguous"), std::string::npos) << text;
}

// Case A10 b: rank 2 brings a K of another head_dim. Every rank throws, none hangs, and the object is still
// good.
TEST(Object, a_wrong_tensor_on_one_rank_is_an_error_of_all_and_harms_nothing) {
  const auto texts = errors_of<UsageError>(4, [](const std::shared_ptr<Communicator>& comm) {
    RingAttention ring = zigzag_ring(comm, causal_problem(64));
    Local local(ring);
    ConstTensorView k = local.k_view;
    if (comm->rank() == 2) k.shape[3] = 7;
    std::string text;
    try {
      ring.forward(local.q_view, k, local.v_view, local.out_view, local.lse_view);
    } catch (const UsageError& e) {
      text = e.what();
    }
    ring.forward(local.q_view, local.k_view, local.v_view, local.out_view, local.lse_view);
    EXPECT_TRUE(std::ranges::all_of(local.out, [](float x) { return std::isfinite(x); }));
    throw UsageError(text);
  });
  for (const auto& text : texts) {
    EXPECT_NE(text.find("k has shape [1, 16, 1, 7], expected [1, 16, 1, 8]"), std::string::npos) << text;
  }
  EXPECT_NE(texts[0].find("rank 2: "), std::string::npos) << texts[0];
}

TEST(Object, refuses_views_that_it_cannot_use_by_name) {
  RingAttention ring = zigzag_ring(make_self_communicator(), causal_problem(16));
  const auto refused = [&](const char* expected, const std::function<void(Local&)>& spoil) {
    Local local(ring);
    spoil(local);
    try {
      ring.forward(local.q_view, local.k_view, local.v_view, local.out_view, local.lse_view);
      ADD_FAILURE() << "accepted: " << expected;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(expected), std::string::npos) << e.what();
    }
  };
  refused("v has dtype bf16", [](Local& l) { l.v_view.dtype = DType::bf16; });
  refused("q has no data", [](Local& l) { l.q_view.data = nullptr; });
  refused("q has stride 2 along the last", [](Local& l) { l.q_view.stride[3] = 2; });
  refused("out has stride 0 along dimension 1", [](Local& l) { l.out_view.stride[1] = 0; });
  refused("lse has shape [1, 2, 15]", [](Local& l) { l.lse_view.shape[2] = 15; });
}

// Of this build or this machine; tests/attention_cuda has the rest on the harness.
TEST(Object, a_gpu_that_is_not_there_is_a_DeviceError_of_every_rank) {
  try {
    current_cuda_device();
    GTEST_SKIP() << "this machine has a GPU";
  } catch (const DeviceError&) {
  }
  int not_a_stream = 0;
  const auto texts = errors_of<DeviceError>(2, [&](const std::shared_ptr<Communicator>& comm) {
    zigzag_ring(comm, causal_problem(16), {.backend = Backend::cuda, .stream = &not_a_stream});
  });
  for (const auto& text : texts) EXPECT_FALSE(text.empty());
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Object, a_stream_is_refused_by_the_cpu) {
  int stream = 0;
  EXPECT_THROW(zigzag_ring(make_self_communicator(), causal_problem(16), {.stream = &stream}), UsageError);
}

TEST(Object, refuses_positions_that_do_not_fit) {
  const index_t own[] = {0, 1, 2};
  Problem problem = causal_problem(16);
  RingAttention plain = zigzag_ring(make_self_communicator(), problem);
  Local a(plain);
  EXPECT_THROW(plain.forward(a.q_view, a.k_view, a.v_view, a.out_view, {}, {.q = own}), UsageError);
  problem.rope.pairing = Rope::Pairing::half;
  RingAttention turned = zigzag_ring(make_self_communicator(), problem);
  Local b(turned);
  EXPECT_THROW(turned.forward(b.q_view, b.k_view, b.v_view, b.out_view, {}, {.k = own}), UsageError);
}

TEST(Object, the_callers_positions_replace_the_global_ones) {
  // Two documents packed at different offsets in q and k: no shift of global positions lines them up.
  const std::vector<index_t> cu_q{0, 2, 7}, cu_k{0, 5, 11};
  Problem problem{.shape = {.head_dim = 8},
                  .mask = Mask::documents(7, 11, cu_q, cu_k, {-1, 0}),
                  .rope = {.pairing = Rope::Pairing::interleaved}};
  RingAttention ring = zigzag_ring(make_self_communicator(), problem);
  Local local(ring);
  EXPECT_THROW(ring.forward(local.q_view, local.k_view, local.v_view, local.out_view), UsageError);
  // Positions within each document, counted from its own first key.
  const std::vector<index_t> q_positions{3, 4, 1, 2, 3, 4, 5}, k_positions{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5};
  ring.forward(local.q_view, local.k_view, local.v_view, local.out_view, {},
               {.q = q_positions, .k = k_positions});

  // Document 1 alone, with its global positions, must agree: queries 2..6 and keys 5..10.
  problem.mask = Mask::causal(5, 6);
  RingAttention alone = zigzag_ring(make_self_communicator(), problem);
  Local second(alone);
  std::copy_n(local.q.begin() + 16, 40, second.q.begin());
  std::copy_n(local.k.begin() + 40, 48, second.k.begin());
  std::copy_n(local.v.begin() + 40, 48, second.v.begin());
  alone.forward(second.q_view, second.k_view, second.v_view, second.out_view);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_NEAR(second.out[i], local.out[16 + i], 1e-6) << i;
}

// Case A17: views of other buffers give the bits of the dense call.
TEST(Object, strided_views_give_the_same_bits) {
  const Problem problem = causal_problem(16, 2, 2, 8);
  RingAttention ring = zigzag_ring(make_self_communicator(), problem);
  Local dense(ring);
  ring.forward(dense.q_view, dense.k_view, dense.v_view, dense.out_view, dense.lse_view);

  Local strided(ring);
  std::vector<float> fused(16 * 3 * 16, std::nanf("")), rows(2 * 16 * 16, std::nanf("")),
      heads_first(16 * 16);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t h = 0; h < 2; ++h)
      for (std::size_t d = 0; d < 8; ++d) {
        const std::size_t e = (i * 2 + h) * 8 + d;
        fused[i * 48 + h * 8 + d] = dense.q[e];          // q as the first third of a fused QKV buffer
        rows[2 * i * 16 + h * 8 + d] = dense.k[e];       // k as every second row of a longer buffer
        heads_first[(h * 16 + i) * 8 + d] = dense.v[e];  // v as a view of [batch, heads, rows, dim]
      }
  strided.q_view.data = fused.data(), strided.q_view.stride = {768, 48, 8, 1};
  strided.k_view.data = rows.data(), strided.k_view.stride = {512, 32, 8, 1};
  strided.v_view.data = heads_first.data(), strided.v_view.stride = {256, 8, 128, 1};
  std::vector<float> wide(16 * 40, -7.f);
  strided.out_view.data = wide.data(), strided.out_view.stride = {640, 40, 20, 1};
  ring.forward(strided.q_view, strided.k_view, strided.v_view, strided.out_view, strided.lse_view);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t e = 0; e < 40; ++e) {
      const bool inside = e % 20 < 8;
      EXPECT_EQ(wide[i * 40 + e], inside ? dense.out[i * 16 + e / 20 * 8 + e % 20] : -7.f) << i << " " << e;
    }
  EXPECT_EQ(dense.lse, strided.lse);
}

// Case A15: fifty repeats on four ranks leave the inputs alone and give the same bits.
TEST(Object, repeats_are_identical_and_inputs_are_only_read) {
  for (const index_t length : {8, 64, 1021}) {
    run_thread_ranks(4, [&](const std::shared_ptr<Communicator>& comm) {
      RingAttention ring = zigzag_ring(comm, causal_problem(length));
      Local local(ring);
      const auto q = local.q, k = local.k, v = local.v;
      std::vector<float> first;
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::ranges::fill(local.out, std::nanf(""));
        ring.forward(local.q_view, local.k_view, local.v_view, local.out_view, local.lse_view);
        if (repeat == 0) first = local.out;
        ASSERT_EQ(local.out, first);
      }
      EXPECT_EQ(local.q, q);
      EXPECT_EQ(local.k, k);
      EXPECT_EQ(local.v, v);
    });
  }
}

// Case A38: X, Y, X, Y without causal, X; and two objects alive at once.
TEST(Object, nothing_leaks_from_one_problem_into_the_next) {
  const Problem x{.shape = {.num_heads = 12, .num_heads_kv = 12, .head_dim = 4},
                  .mask = Mask::causal(16, 16)};
  const Problem y{.shape = {.num_heads = 8, .num_heads_kv = 2, .head_dim = 4},
                  .mask = Mask::window(24, 24, {5, 0})};
  Problem y_open = y;
  y_open.mask = Mask::window(24, 24, {5, -1});
  const auto sum = [](const Answer& a) { return std::accumulate(a.out.data.begin(), a.out.data.end(), 0.0); };
  const Answer first = run_threads(x, LayoutKind::zigzag, 4, case_inputs(x));
  EXPECT_NEAR(sum(first), -1.498664949130, 1e-4);
  EXPECT_NEAR(sum(run_threads(y, LayoutKind::zigzag, 4, case_inputs(y))), 23.735160704690, 1e-4);
  EXPECT_TRUE(same_bits(run_threads(x, LayoutKind::zigzag, 4, case_inputs(x)).out.data, first.out.data));
  run_threads(y_open, LayoutKind::zigzag, 4, case_inputs(y_open));
  EXPECT_TRUE(same_bits(run_threads(x, LayoutKind::zigzag, 4, case_inputs(x)).out.data, first.out.data));

  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& comm) {
    RingAttention a = zigzag_ring(comm, causal_problem(37)),
                  b = zigzag_ring(comm, causal_problem(53, 4, 2, 16));
    Local la(a), lb(b);
    a.forward(la.q_view, la.k_view, la.v_view, la.out_view);
    const auto before = la.out;
    b.forward(lb.q_view, lb.k_view, lb.v_view, lb.out_view);
    a.forward(la.q_view, la.k_view, la.v_view, la.out_view);
    EXPECT_EQ(la.out, before);
  });
}

TEST(Object, bytes_and_messages_are_those_of_the_plan) {
  for (const auto& mask : {Mask::causal(101, 101), Mask::window(101, 101, {7, 0})})
    for (const int ranks : {1, 2, 3, 5}) {
      run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
        const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 20}, .mask = mask};
        RingAttention ring(comm, problem, Sharding::make(LayoutKind::contiguous, 101, 101, ranks),
                           {.threads = 1});
        Local local(ring);
        const SentCount before = comm->sent();
        ring.forward(local.q_view, local.k_view, local.v_view, local.out_view);
        const SentCount after = comm->sent();
        const Traffic planned = forward_traffic(
            ring.plan(), [&](index_t rows) { return cpu_block_bytes(problem.heads(), problem.dtype, rows); });
        EXPECT_EQ(after.bytes - before.bytes, planned.bytes_sent);
        EXPECT_EQ(after.messages - before.messages, planned.messages_sent);
      });
    }
}

// What a caller sees of a broken ring: each kind of fault at hop 1 on rank 1.
TEST(Object, a_broken_ring_is_a_communication_error_of_every_rank_that_meets_it) {
  for (const auto kind : {Fault::Kind::truncate, Fault::Kind::fail, Fault::Kind::vanish}) {
    const auto start = Clock::now();
    const auto texts = errors_of<CommError>(3, [&](const std::shared_ptr<Communicator>& inner) {
      std::shared_ptr<Communicator> comm = inner;
      if (inner->rank() == 1) comm = make_faulty(inner, {{.kind = kind, .hop = 1}});
      RingAttention ring = zigzag_ring(comm, causal_problem(96), {.deadline = 700ms});
      Local local(ring);
      ring.forward(local.q_view, local.k_view, local.v_view, local.out_view);
    });
    EXPECT_LT(Clock::now() - start, 20s);
    EXPECT_TRUE(
        std::ranges::any_of(texts, [](const auto& t) { return t.find("hop 1") != std::string::npos; }))
        << texts[0] << " | " << texts[1] << " | " << texts[2];
  }
}

TEST(Object, a_slow_rank_is_waited_for) {
  const Problem problem = causal_problem(48);
  std::vector<std::vector<float>> out(2);
  run_thread_ranks(2, [&](const std::shared_ptr<Communicator>& inner) {
    std::shared_ptr<Communicator> comm = inner;
    if (inner->rank() == 1)
      comm = make_faulty(inner, {{.kind = Fault::Kind::delay, .hop = 0, .delay = 300ms}});
    RingAttention ring = zigzag_ring(comm, problem, {.deadline = 5s});
    Local local(ring);
    const Timing timing = ring.forward(local.q_view, local.k_view, local.v_view, local.out_view);
    EXPECT_GT(timing.wait() + timing.compute(), 0.25);
    out[static_cast<std::size_t>(inner->rank())] = local.out;
  });
  run_thread_ranks(2, [&](const std::shared_ptr<Communicator>& comm) {
    RingAttention ring = zigzag_ring(comm, problem);
    Local local(ring);
    ring.forward(local.q_view, local.k_view, local.v_view, local.out_view);
    EXPECT_EQ(local.out, out[static_cast<std::size_t>(comm->rank())]);
  });
}

TEST(Object, memory_that_cannot_be_had_is_stated_in_bytes_on_every_rank) {
  // 2^31 tokens with 2^12 heads of 512 floats: more than any address space.
  const index_t length = index_t{1} << 31;
  const auto texts = errors_of<OutOfMemory>(2, [&](const std::shared_ptr<Communicator>& comm) {
    RingAttention(comm,
                  {.shape = {.num_heads = 4096, .num_heads_kv = 4096, .head_dim = 512},
                   .mask = Mask::causal(length, length)},
                  Sharding::make(LayoutKind::contiguous, length, length, 2), {.threads = 1});
  });
  for (const auto& text : texts) EXPECT_NE(text.find("bytes"), std::string::npos) << text;
}

TEST(Object, states_the_workspace_before_it_is_allocated) {
  const Problem problem = causal_problem(211, 4, 2, 20);
  run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& comm) {
    const auto sharding = Sharding::make(LayoutKind::zigzag, 211, 211, 3);
    RingAttention ring(comm, problem, sharding, {.threads = 2});
    const Workspace stated = workspace(problem, sharding, comm->rank(), 2);
    EXPECT_EQ(ring.workspace().kernel, stated.kernel);
    EXPECT_EQ(ring.workspace().slots, stated.slots);
  });
}

}  // namespace
}  // namespace ringattn::test
