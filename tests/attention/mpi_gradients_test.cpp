// Gradients over MPI: every rank of mpirun checks the rows that it owns.
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/mpi.h"
#include "tests/attention/random_problem.h"
#include "tests/support/gradient_case.h"

namespace ringattn::test {
namespace {

// Starts from the right answer, so that what other ranks own is no difference; own rows come out of poisoned
// tensors.
void expect_own_gradients(const std::shared_ptr<Communicator>& comm, const RandomProblem& p, const Inputs& in,
                          const GradientAnswer& exact, const GradientBound& bound) {
  const auto sharding = Sharding::make(p.layout, p.problem.seqlen_q(), p.problem.seqlen_k(), comm->size());
  GradientAnswer got = exact;
  run_rank_gradients(comm, p.problem, sharding, {.threads = 1, .deadline = std::chrono::seconds(60)}, in,
                     got);
  EXPECT_LE(max_error(got.dq.data, exact.dq.data), bound.dq) << "dq, " << describe(p, comm->size());
  EXPECT_LE(max_error(got.dk.data, exact.dk.data), bound.dk) << "dk, " << describe(p, comm->size());
  EXPECT_LE(max_error(got.dv.data, exact.dv.data), bound.dv) << "dv, " << describe(p, comm->size());
}

TEST(MpiGradients, match_the_oracle_on_random_problems) {
  const std::shared_ptr<Communicator> comm = make_mpi_communicator(MPI_COMM_WORLD);
  for (unsigned seed = 6000; seed < 6008; ++seed) {
    const RandomProblem p = random_problem(seed);
    const Inputs in = random_inputs(p.problem, seed);
    const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
    expect_own_gradients(comm, p, in, exact, gradient_bound(p.problem, in, p.visible, exact));
  }
}

// Case A20: shards of K of 1000, 4000, 4096, 5000, 70000 and 1000000 bytes, around and beyond the size from
// which Open MPI's sends wait for their receive. Three queries keep it cheap; all ranks see all keys.
TEST(MpiGradients, travel_in_blocks_of_every_size) {
  const std::shared_ptr<Communicator> comm = make_mpi_communicator(MPI_COMM_WORLD);
  struct Size {
    index_t rows, head_dim;  // 4 * rows * head_dim bytes
  };
  for (const Size size : {Size{50, 5}, {200, 5}, {128, 8}, {250, 5}, {500, 35}, {1000, 250}}) {
    const index_t keys = size.rows * comm->size();
    const RandomProblem p{{.shape = {.head_dim = size.head_dim}, .mask = Mask::full(3, keys)},
                          full_case(3, keys).visible,
                          LayoutKind::contiguous};
    const Inputs in = random_inputs(p.problem, 11);
    const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
    expect_own_gradients(comm, p, in, exact, gradient_bound(p.problem, in, p.visible, exact));
  }
}

// Case A21 test 2: chunks that cut rows in pieces, so that gradients arrive bit by bit, give the same bits.
TEST(MpiGradients, the_chunk_size_changes_no_bit) {
  const Problem problem{.shape = {.num_heads = 4, .num_heads_kv = 2, .head_dim = 20},
                        .mask = Mask::causal(397, 397)};
  const Inputs in = random_inputs(problem, 3);
  const std::shared_ptr<Communicator> whole = make_mpi_communicator(MPI_COMM_WORLD);
  const std::shared_ptr<Communicator> pieces = make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 1000});
  const auto sharding = Sharding::make(LayoutKind::zigzag, 397, 397, whole->size());
  GradientAnswer a = empty_gradients(problem), b = a, c = a;
  run_rank_gradients(whole, problem, sharding, {.threads = 1}, in, a);
  run_rank_gradients(pieces, problem, sharding, {.threads = 1}, in, b);
  run_rank_gradients(pieces, problem, sharding, {.threads = 1, .mode = Mode::blocking}, in, c);
  EXPECT_TRUE(same_gradients(a, b));
  EXPECT_TRUE(same_gradients(a, c));
}

// Case A26: {0,1},{2,3} and {0,2},{1,3} with other data in each group, both at once; and a ring whose ranks
// are numbered backwards.
TEST(MpiGradients, rings_of_sub_communicators_are_independent) {
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
      const Inputs in = random_inputs(p.problem, static_cast<unsigned>(100 + split.color));
      const GradientAnswer exact = oracle_gradients(p.problem, in, p.visible);
      expect_own_gradients(comm, p, in, exact, gradient_bound(p.problem, in, p.visible, exact));
    }
    MPI_Comm_free(&part);
  }
}

}  // namespace
}  // namespace ringattn::test
