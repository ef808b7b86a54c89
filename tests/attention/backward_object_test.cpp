// RingAttention::backward as a call: what it refuses and how, broken rings, traffic and memory as planned.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/faulty.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "kernels/cpu/cpu.h"
#include "src/cost.h"
#include "src/error.h"
#include "tests/attention/case_check.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

using namespace std::chrono_literals;

Problem causal_problem(index_t length) {
  return {.shape = {.num_heads = 4, .num_heads_kv = 2, .head_dim = 8, .head_dim_v = 5},
          .mask = Mask::causal(length, length)};
}
Sharding sharding_of(const Problem& p, LayoutKind layout, int ranks) {
  return Sharding::make(layout, p.seqlen_q(), p.seqlen_k(), ranks);
}

struct Refusal {
  const char* text;
  std::function<void(RankTensors&)> spoil;
};

// 31 tokens on 3 ranks: rank 1 has 10 or 11 rows of each.
std::vector<Refusal> refusals() {
  using T = RankTensors;
  return {
      {"dout has shape [", [](T& t) { t.dout.shape[3] = 8; }},
      {"dout has dtype f16", [](T& t) { t.dout.dtype = DType::f16; }},
      {"dout has no data", [](T& t) { t.dout.data = nullptr; }},
      {"dout has stride 0 along the last dimension", [](T& t) { t.dout.stride[3] = 0; }},
      {"q has shape [", [](T& t) { t.q.shape[2] = 2; }},
      {"q has dtype bf16", [](T& t) { t.q.dtype = DType::bf16; }},
      {"k has no data", [](T& t) { t.k.data = nullptr; }},
      {"k has stride 2 along the last dimension", [](T& t) { t.k.stride[3] = 2; }},
      {"v has shape [", [](T& t) { t.v.shape[1] += 1; }},
      {"out has shape [", [](T& t) { t.out.shape[0] = 2; }},
      {"out has dtype bf16", [](T& t) { t.out.dtype = DType::bf16; }},
      {"out has no data", [](T& t) { t.out.data = nullptr; }},
      {"lse has no data", [](T& t) { t.lse.data = nullptr; }},
      {"lse has shape [1, 3, ", [](T& t) { t.lse.shape[1] = 3; }},
      {"lse has stride 2 along the last dimension", [](T& t) { t.lse.stride[2] = 2; }},
      {"dq has shape [", [](T& t) { t.dq.shape[3] = 5; }},
      {"dq has no data", [](T& t) { t.dq.data = nullptr; }},
      {"dq has stride 0 along dimension 1", [](T& t) { t.dq.stride[1] = 0; }},
      {"dk has shape [", [](T& t) { t.dk.shape[2] = 4; }},
      {"dk has dtype f16", [](T& t) { t.dk.dtype = DType::f16; }},
      {"dk has stride 0 along dimension 2", [](T& t) { t.dk.stride[2] = 0; }},
      {"dv has shape [", [](T& t) { t.dv.shape[3] = 8; }},
      {"dv has stride 0 along the last dimension", [](T& t) { t.dv.stride[3] = 0; }},
      {"dv has no data", [](T& t) { t.dv.data = nullptr; }},
  };
}

TEST(BackwardObject, a_wrong_argument_on_one_rank_is_named_by_all_and_harms_nothing) {
  const Problem problem = causal_problem(31);
  const auto sharding = sharding_of(problem, LayoutKind::zigzag, 3);
  const Inputs in = random_inputs(problem, 1);
  run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& comm) {
    RankTensors mine(problem, sharding, comm->rank(), in);
    RingAttention ring(comm, problem, sharding, {.threads = 1});
    mine.forward(ring);
    mine.backward(ring);
    const auto right = mine.gradient_bytes();
    for (const Refusal& refusal : refusals()) {
      RankTensors views = mine;
      views.poison_gradients();
      const auto poison = views.gradient_bytes();
      if (comm->rank() == 1) refusal.spoil(mine);
      std::string text = "accepted";
      try {
        mine.backward(ring);
      } catch (const UsageError& e) {
        text = e.what();
      }
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
      EXPECT_NE(text.find(refusal.text), std::string::npos) << refusal.text << " is not in: " << text;
      EXPECT_TRUE(mine.gradient_bytes() == right) << refusal.text;  // nothing was written
      mine.q = views.q, mine.k = views.k, mine.v = views.v, mine.dout = views.dout, mine.out = views.out;
      mine.lse = views.lse, mine.dq = views.dq, mine.dk = views.dk, mine.dv = views.dv;
      mine.poison_gradients();
      ASSERT_TRUE(mine.gradient_bytes() == poison);
      mine.backward(ring);
      EXPECT_TRUE(mine.gradient_bytes() == right) << "after: " << refusal.text;
    }
  });
}

TEST(BackwardObject, refuses_positions_that_do_not_fit) {
  const index_t own[] = {0, 1, 2};
  Problem problem = causal_problem(16);
  for (const bool rope : {false, true}) {
    if (rope) problem.rope.pairing = Rope::Pairing::half;
    const auto sharding = sharding_of(problem, LayoutKind::contiguous, 1);
    RankTensors mine(problem, sharding, 0, case_inputs(problem));
    RingAttention ring(make_self_communicator(), problem, sharding, {.threads = 1});
    mine.forward(ring);
    EXPECT_THROW(ring.backward(mine.inputs(), mine.gradients(), {.q = own}), UsageError);
    EXPECT_THROW(ring.backward(mine.inputs(), mine.gradients(), {.k = own}), UsageError);
  }
}

// Positions that repeat the global ones change no bit; others change dq and dk, which turn back by them.
TEST(BackwardObject, turns_back_by_the_callers_positions) {
  Problem problem = causal_problem(16);
  problem.rope.pairing = Rope::Pairing::interleaved;
  const auto sharding = sharding_of(problem, LayoutKind::contiguous, 1);
  RankTensors mine(problem, sharding, 0, case_inputs(problem));
  RingAttention ring(make_self_communicator(), problem, sharding, {.threads = 1});
  mine.forward(ring);
  mine.backward(ring);
  const auto right = mine.gradient_bytes();
  std::vector<index_t> same(16), doubled(16);
  for (index_t i = 0; i < 16; ++i) {
    same[static_cast<std::size_t>(i)] = i;
    doubled[static_cast<std::size_t>(i)] = 2 * i;
  }
  mine.poison_gradients();
  ring.backward(mine.inputs(), mine.gradients(), {.q = same, .k = same});
  EXPECT_TRUE(mine.gradient_bytes() == right);

  // Twice the positions is RoPE over twice the sequence at every second token.
  Problem longer = problem;
  const auto even = [](index_t i) { return i % 2 == 0; };
  std::vector<Tile> tiles;
  for (index_t i = 0; i < 31; i += 2)
    for (index_t j = 0; j <= i; j += 2) tiles.push_back({{i, i + 1}, {j, j + 1}, {}});
  longer.mask = Mask::tiles(31, 31, tiles);
  Inputs spread{Tensor(q_shape(longer)), Tensor(k_shape(longer)), Tensor(v_shape(longer)),
                Tensor(out_shape(longer))};
  const Inputs in = case_inputs(problem);
  for (auto [from, to] :
       {std::pair{&in.q, &spread.q}, {&in.k, &spread.k}, {&in.v, &spread.v}, {&in.dout, &spread.dout}})
    for (index_t i = 0; i < 16; ++i)
      for (index_t h = 0; h < from->shape[2]; ++h)
        for (index_t d = 0; d < from->shape[3]; ++d) to->at(0, 2 * i, h, d) = from->at(0, i, h, d);
  const GradientAnswer exact =
      oracle_gradients(longer, spread, [&](index_t i, index_t j) { return even(i) && even(j) && j <= i; });
  ring.forward(mine.q, mine.k, mine.v, mine.out, mine.lse, {.q = doubled, .k = doubled});
  ring.backward(mine.inputs(), mine.gradients(), {.q = doubled, .k = doubled});
  GradientAnswer got = empty_gradients(problem);
  mine.collect(got);
  for (index_t i = 0; i < 16; ++i)
    for (index_t h = 0; h < 4; ++h)
      for (index_t d = 0; d < 8; ++d) {
        EXPECT_NEAR(got.dq.at(0, i, h, d), exact.dq.at(0, 2 * i, h, d), 2e-6);
        if (h < 2) {
          EXPECT_NEAR(got.dk.at(0, i, h, d), exact.dk.at(0, 2 * i, h, d), 2e-6);
        }
      }
}

// What every rank of four sees when rank 1 fails at one gradient hop (channel 1): "" = no error.
std::vector<std::string> backward_with(const Fault& fault) {
  const Problem problem = causal_problem(96);
  const auto sharding = sharding_of(problem, LayoutKind::zigzag, 4);
  const Inputs in = random_inputs(problem, 2);
  std::vector<std::string> texts(4);
  const auto start = Clock::now();
  run_thread_ranks(4, [&](const std::shared_ptr<Communicator>& inner) {
    std::shared_ptr<Communicator> comm = inner;
    if (inner->rank() == 1) comm = make_faulty(inner, {fault});
    RankTensors mine(problem, sharding, comm->rank(), in);
    RingAttention ring(comm, problem, sharding, {.threads = 1, .deadline = 1500ms});
    mine.forward(ring);  // channel 0 alone: no fault
    try {
      mine.backward(ring);
    } catch (const CommError& e) {
      texts[static_cast<std::size_t>(comm->rank())] = e.what();
    }
  });
  EXPECT_LT(Clock::now() - start, 20s);
  return texts;
}

// Hops 1 and 2 pass gradients on, hop 3 is the last one, home.
TEST(BackwardObject, a_broken_gradient_hop_is_a_communication_error_of_every_rank_that_meets_it) {
  for (const auto kind : {Fault::Kind::truncate, Fault::Kind::fail, Fault::Kind::vanish})
    for (const int hop : {1, 2, 3}) {
      const auto texts = backward_with({.kind = kind, .hop = hop, .channel = 1});
      const auto named = std::ranges::count_if(texts, [&](const std::string& t) {
        return t.find("hop " + std::to_string(hop)) != std::string::npos;
      });
      EXPECT_GE(named, 1) << static_cast<int>(kind) << ", hop " << hop << ": " << texts[0] << " | "
                          << texts[1] << " | " << texts[2] << " | " << texts[3];
      if (kind == Fault::Kind::vanish) {
        EXPECT_NE(texts[1], "") << "the silent rank receives nothing";
        EXPECT_NE(texts[2] + texts[3] + texts[0], "") << "a peer waits for it";
      }
    }
}

TEST(BackwardObject, a_late_gradient_is_waited_for_and_changes_nothing) {
  const Problem problem = causal_problem(48);
  const auto sharding = sharding_of(problem, LayoutKind::zigzag, 3);
  const Inputs in = random_inputs(problem, 3);
  const GradientAnswer right = run_threads_gradients(problem, sharding, in);
  for (const int hop : {1, 2}) {
    GradientAnswer got = empty_gradients(problem);
    run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& inner) {
      std::shared_ptr<Communicator> comm = inner;
      if (inner->rank() == 1)
        comm = make_faulty(inner, {{.kind = Fault::Kind::delay, .hop = hop, .channel = 1, .delay = 200ms}});
      run_rank_gradients(comm, problem, sharding, {.threads = 1, .deadline = 5s}, in, got);
    });
    EXPECT_TRUE(same_gradients(got, right)) << "hop " << hop;
  }
}

// A bit that flips on its way must show: otherwise nothing that travels on channel 1 would be used.
TEST(BackwardObject, a_corrupted_gradient_changes_the_answer) {
  const Problem problem = causal_problem(48);
  const auto sharding = sharding_of(problem, LayoutKind::striped, 3);
  const Inputs in = random_inputs(problem, 3);
  const GradientAnswer right = run_threads_gradients(problem, sharding, in);
  for (const int hop : {1, 2}) {
    GradientAnswer got = empty_gradients(problem);
    run_thread_ranks(3, [&](const std::shared_ptr<Communicator>& inner) {
      std::shared_ptr<Communicator> comm = inner;
      if (inner->rank() == 1)
        comm = make_faulty(inner, {{.kind = Fault::Kind::corrupt, .hop = hop, .channel = 1}});
      run_rank_gradients(comm, problem, sharding, {.threads = 1}, in, got);
    });
    EXPECT_FALSE(same_gradients(got, right)) << "hop " << hop;
    EXPECT_TRUE(same_bits(got.dq.data, right.dq.data)) << "dq never travels";
  }
}

TEST(BackwardObject, sends_as_many_bytes_and_messages_as_planned) {
  for (const auto& mask : {Mask::causal(101, 101), Mask::window(101, 101, {7, 0}), Mask::full(3, 3)})
    for (const LayoutKind layout : kLayouts)
      for (const int ranks : {1, 2, 3, 5}) {
        const Problem problem{.shape = {.num_heads = 4, .num_heads_kv = 2, .head_dim = 20}, .mask = mask};
        const auto sharding = sharding_of(problem, layout, ranks);
        const Inputs in = case_inputs(problem);
        run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
          RankTensors mine(problem, sharding, comm->rank(), in);
          RingAttention ring(comm, problem, sharding, {.threads = 1});
          mine.forward(ring);
          const SentCount before = comm->sent();
          mine.backward(ring);
          const Traffic planned = backward_traffic(
              ring.plan(), [&](index_t r) { return cpu_block_bytes(problem.heads(), problem.dtype, r); },
              [&](index_t r) { return cpu_gradient_bytes(problem.heads(), r); });
          EXPECT_EQ(comm->sent().bytes - before.bytes, planned.bytes_sent);
          EXPECT_EQ(comm->sent().messages - before.messages, planned.messages_sent);
          if (mask.name() == "causal") {
            EXPECT_EQ(comm->sent().messages, static_cast<std::uint64_t>(3 * (ranks - 1)));
          }
        });
      }
}

// At a fixed shard nothing grows with the number of ranks; one rank needs one slot of each kind.
TEST(BackwardObject, holds_the_stated_workspace_whatever_the_number_of_ranks) {
  std::vector<std::size_t> totals;
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Problem problem = causal_problem(41 * ranks);
    const auto sharding = sharding_of(problem, LayoutKind::contiguous, ranks);
    const Inputs in = case_inputs(problem);
    run_thread_ranks(ranks, [&](const std::shared_ptr<Communicator>& comm) {
      RankTensors mine(problem, sharding, comm->rank(), in);
      RingAttention ring(comm, problem, sharding, {.threads = 2});
      mine.forward(ring);
      EXPECT_EQ(ring.workspace().gradients, 0U) << "forward alone needs none";
      mine.backward(ring);
      const Workspace held = ring.workspace(),
                      stated = workspace(problem, sharding, comm->rank(), 2, Pass::backward);
      EXPECT_EQ(held.kernel, stated.kernel);
      EXPECT_EQ(held.slots, stated.slots);
      EXPECT_EQ(held.gradients, stated.gradients);
      EXPECT_EQ(stated.gradients, (ranks == 1 ? 1 : 2) * cpu_gradient_bytes(problem.heads(), 41));
      mine.forward(ring);
      EXPECT_EQ(ring.workspace().total(), held.total()) << "forward after backward holds no more";
    });
    totals.push_back(workspace(problem, sharding, 0, 2, Pass::backward).total());
  }
  EXPECT_LT(totals[0], totals[1]);
  for (std::size_t i = 2; i < totals.size(); ++i) EXPECT_EQ(totals[i], totals[1]);
}

}  // namespace
}  // namespace ringattn::test
