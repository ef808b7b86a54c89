// The same ring over MPI: every rank of mpirun checks the rows that it owns.
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi.h"
#include "comm/self.h"
#include "tests/attention/random_problem.h"

namespace ringattn::test {
namespace {

// Of a whole answer only this rank's rows; what other ranks own is left as it is in `whole`.
void expect_own_rows(const std::shared_ptr<Communicator>& comm, const RandomProblem& p, const Inputs& in,
                     const Answer& exact, const Bound& bound) {
  const auto sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), comm->size());
  Answer got = empty_answer(p.problem);
  run_rank(comm, p.problem, sharding, {.threads = 1}, in, got);
  const HeadShape s = p.problem.heads();
  for (index_t b = 0; b < s.batch; ++b)
    for (const index_t i : sharding.q.positions(comm->rank()))
      for (index_t h = 0; h < s.num_heads; ++h) {
        for (index_t d = 0; d < s.head_dim_v; ++d)
          ASSERT_LE(max_error({got.out.at(b, i, h, d)}, {exact.out.at(b, i, h, d)}), bound.out)
              << "row " << i << ", " << describe(p, comm->size());
        const auto e = static_cast<std::size_t>((b * s.num_heads + h) * p.problem.seqlen_q() + i);
        ASSERT_LE(max_error({got.lse[e]}, {exact.lse[e]}), bound.lse)
            << "row " << i << ", " << describe(p, comm->size());
      }
}

TEST(MpiForward, matches_the_oracle_on_random_problems) {
  const std::shared_ptr<Communicator> comm = make_mpi_communicator(MPI_COMM_WORLD);
  for (unsigned seed = 2000; seed < 2030; ++seed) {
    const RandomProblem p = random_problem(seed);
    const Inputs in = random_inputs(p.problem, seed);
    const Answer exact = oracle(p.problem, in, p.visible);
    expect_own_rows(comm, p, in, exact, error_bound(p, in, exact));
  }
}

// Case A21 test 2: chunks that cut rows in pieces give the same bits.
TEST(MpiForward, the_chunk_size_changes_no_bit) {
  const Problem problem{.shape = {.num_heads = 2, .num_heads_kv = 2, .head_dim = 20},
                        .mask = Mask::causal(197, 197)};
  const Inputs in = random_inputs(problem, 3);
  const std::shared_ptr<Communicator> whole = make_mpi_communicator(MPI_COMM_WORLD);
  const std::shared_ptr<Communicator> pieces = make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 1000});
  const auto sharding = Sharding::make(LayoutKind::zigzag, 197, 197, whole->size());
  Answer a = empty_answer(problem), b = empty_answer(problem);
  run_rank(whole, problem, sharding, {.threads = 1}, in, a);
  run_rank(pieces, problem, sharding, {.threads = 1}, in, b);
  EXPECT_TRUE(same_bits(a.out.data, b.out.data));
}

// Case A26: rings inside sub-communicators, both at once, and one whose ranks are numbered backwards.
TEST(MpiForward, rings_of_sub_communicators_are_independent) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  struct Split {
    int color, key;
  };
  for (const Split split : {Split{rank / 2, rank}, Split{rank % 2, rank}, Split{0, size - rank}}) {
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, split.color, split.key, &part);
    {
      const std::shared_ptr<Communicator> comm = make_mpi_communicator(part);
      const RandomProblem p{
          {.shape = {.num_heads = 2, .num_heads_kv = 1, .head_dim = 20}, .mask = Mask::causal(53, 53)},
          causal_case(53, 53).visible,
          LayoutKind::zigzag};
      const Inputs in =
          random_inputs(p.problem, static_cast<unsigned>(100 + split.color));  // other data in each group
      expect_own_rows(comm, p, in, oracle(p.problem, in, p.visible), {1e-6, 2e-6});
    }
    MPI_Comm_free(&part);
  }
}

}  // namespace
}  // namespace ringattn::test
