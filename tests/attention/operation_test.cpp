// Ranks that do different things at the same time: all of them are told, at once, who does what.
#include <gtest/gtest.h>

#include <vector>

#include "comm/threads.h"
#include "src/attention.h"
#include "src/error.h"
#include "tests/attention/operation_check.h"

namespace ringattn::test {
namespace {

TEST(Operation, ranks_that_call_different_functions_are_all_told) {
  for (const int ranks : {2, 3, 5})
    run_thread_ranks(ranks, [](const std::shared_ptr<Communicator>& comm) { expect_told_of_calls(comm); });
}

TEST(Operation, ranks_that_use_different_objects_are_all_told) {
  for (const int ranks : {2, 3, 5})
    run_thread_ranks(ranks, [](const std::shared_ptr<Communicator>& comm) { expect_told_of_problems(comm); });
}

// A wrong argument on a rank that is in another call makes no sense to the others.
TEST(Operation, a_different_call_outweighs_a_wrong_argument) {
  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& comm) {
    Ring ring(comm, Mask::causal(13, 13));
    const std::string text = usage_error([&] {
      if (comm->rank() == 2) return ring.backward({});
      ring.forward();
    });
    EXPECT_EQ(text, "ranks disagree: rank 2: call backward, others forward");
    ring.forward();
  });
}

TEST(Operation, a_rank_that_builds_while_others_call_is_told) {
  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& comm) {
    Ring ring(comm, Mask::causal(13, 13));
    const std::string text = usage_error([&] {
      if (comm->rank() == 0) return Ring(comm, Mask::full(5, 5)).forward();
      ring.forward();
    });
    EXPECT_EQ(text, "ranks disagree: rank 0: call construction, others forward");
    ring.forward();
  });
}

}  // namespace
}  // namespace ringattn::test
