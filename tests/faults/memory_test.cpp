// Not enough memory: said with its size before anything else happens, on all ranks alike.
#include <gtest/gtest.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

void expect_refused(const JobResult& job, const std::string& who) {
  EXPECT_EQ(job.exit_code, 6) << job.err;
  EXPECT_EQ(errors_said(job), 1) << job.err;
  EXPECT_TRUE(has(job.err, who + "needs "));
  EXPECT_TRUE(has(job.err, "iB per rank, "));
  EXPECT_TRUE(has(job.err, " available ("));
  EXPECT_EQ(job.out, "");
  EXPECT_LT(job.seconds.count(), 20) << "nothing was made or computed first";
}

// 2^40 tokens are petabytes: no machine has them. A window keeps the pairs countable.
TEST(Memory, OfAnAbsurdLengthIsRefusedBeforeAnythingIsAllocated) {
  for (const int ranks : {2, 5}) {
    const JobResult job = run_job(local(
        ranks, words("bench --seqlen 1099511627776 --window 0,0 --head-dim 128 --threads 1 --deadline 5")));
    expect_refused(job, "");
    EXPECT_TRUE(has(job.err, "PiB per rank"));
  }
}

TEST(Memory, BeyondTheAddressSpaceOfAllRanksIsRefused) {
  const Words arguments = words("bench --seqlen 65521 --num-heads 64 --threads 1 --deadline 5");
  const JobResult job = run_job(mpirun({{3, arguments, limited("ulimit -v 900000")}}));
  expect_refused(job, "");
  EXPECT_TRUE(has(job.err, "address space limit"));
}

// Only rank 2 is short of it, and is named.
TEST(Memory, BeyondTheAddressSpaceOfOneRankIsRefusedByAll) {
  const Words arguments =
      words("bench --seqlen 6553 --num-heads 64 --window 0,0 --threads 1 --iterations 1 --deadline 5");
  const JobResult job =
      run_job(mpirun({{2, arguments}, {1, arguments, limited("ulimit -v 500000")}, {1, arguments}}));
  expect_refused(job, "rank 2: ");
}

}  // namespace
}  // namespace ringattn::test
