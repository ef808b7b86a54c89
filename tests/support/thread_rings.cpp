// The runs of a whole problem over ranks that are threads of this process, by RingAttention on the CPU: the
// ring of ringattn_ring_case. tests/ring_cuda has another one under the same names, so that what is written
// for the one is run on the other as well.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "comm/threads.h"
#include "tests/support/gradient_case.h"
#include "tests/support/narrow.h"

namespace ringattn::test {

std::vector<RingShape> ring_shapes(const Problem&) {
  std::vector<RingShape> shapes;
  for (const int ranks : {1, 2, 3, 4, 5})
    for (const LayoutKind layout : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped})
      shapes.push_back({ranks, layout});
  return shapes;
}

void run_rank(const std::shared_ptr<Communicator>& comm, const Problem& problem, const Sharding& sharding,
              const RingOptions& options, const Inputs& in, Answer& answer) {
  const auto q_positions = sharding.q.positions(comm->rank()),
             k_positions = sharding.k.positions(comm->rank());
  const index_t q_rows = std::ssize(q_positions), k_rows = std::ssize(k_positions);
  const HeadShape s = problem.heads();
  const DType t = problem.dtype;
  const auto q = shard_of(in.q, q_positions, t), k = shard_of(in.k, k_positions, t),
             v = shard_of(in.v, k_positions, t);
  const Tensor poison({s.batch, q_rows, s.num_heads, s.head_dim_v}, std::numeric_limits<double>::quiet_NaN());
  std::vector<std::byte> out(poison.data.size() * size_of(t),
                             std::byte{0xFF});  // all ones is a NaN in every dtype
  std::vector<float> lse(static_cast<std::size_t>(s.batch * s.num_heads * q_rows), std::nanf(""));

  RingAttention ring(comm, problem, sharding, options);
  ring.forward(
      dense_view(static_cast<const void*>(q.data()), t, {s.batch, q_rows, s.num_heads, s.head_dim}),
      dense_view(static_cast<const void*>(k.data()), t, {s.batch, k_rows, s.num_heads_kv, s.head_dim}),
      dense_view(static_cast<const void*>(v.data()), t, {s.batch, k_rows, s.num_heads_kv, s.head_dim_v}),
      dense_view(static_cast<void*>(out.data()), t, poison.shape),
      dense_lse(lse.data(), s.batch, s.num_heads, q_rows));

  const std::byte* from = out.data();
  for (index_t b = 0; b < s.batch; ++b)
    for (index_t r = 0; r < q_rows; ++r)
      for (index_t h = 0; h < s.num_heads; ++h) {
        const index_t i = q_positions[static_cast<std::size_t>(r)];
        for (index_t d = 0; d < s.head_dim_v; ++d, from += size_of(t))
          answer.out.at(b, i, h, d) = load(from, t);
        answer.lse[static_cast<std::size_t>((b * s.num_heads + h) * problem.seqlen_q() + i)] =
            static_cast<double>(lse[static_cast<std::size_t>((b * s.num_heads + h) * q_rows + r)]);
      }
}

Answer run_threads(const Problem& problem, const Sharding& sharding, const Inputs& in,
                   const RingOptions& options) {
  Answer answer = empty_answer(problem);
  run_thread_ranks(sharding.ranks(), [&](const std::shared_ptr<Communicator>& comm) {
    run_rank(comm, problem, sharding, options, in, answer);
  });
  return answer;
}

void run_rank_gradients(const std::shared_ptr<Communicator>& comm, const Problem& problem,
                        const Sharding& sharding, const RingOptions& options, const Inputs& in,
                        GradientAnswer& answer) {
  RankTensors mine(problem, sharding, comm->rank(), in);
  RingAttention ring(comm, problem, sharding, options);
  mine.forward(ring);
  const auto before = mine.input_bytes();
  mine.backward(ring);
  EXPECT_TRUE(mine.input_bytes() == before) << "backward wrote one of its inputs on rank " << comm->rank();
  mine.collect(answer);
}

GradientAnswer run_threads_gradients(const Problem& problem, const Sharding& sharding, const Inputs& in,
                                     const RingOptions& options) {
  GradientAnswer answer = empty_gradients(problem);
  run_thread_ranks(sharding.ranks(), [&](const std::shared_ptr<Communicator>& comm) {
    run_rank_gradients(comm, problem, sharding, options, in, answer);
  });
  return answer;
}

}  // namespace ringattn::test
