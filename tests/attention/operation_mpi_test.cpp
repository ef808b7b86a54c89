// The same over MPI, where the ranks are processes.
#include "comm/mpi.h"
#include "tests/attention/operation_check.h"

namespace ringattn::test {
namespace {

TEST(MpiOperation, ranks_that_call_different_functions_are_all_told) {
  const std::shared_ptr<Communicator> comm = make_mpi_communicator(MPI_COMM_WORLD);
  expect_told_of_calls(comm);
  expect_told_of_problems(comm);
}

}  // namespace
}  // namespace ringattn::test
