// Faults at a chosen hop of a chosen rank (launch/fault_hook.h): how the whole job ends.
#include <gtest/gtest.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

// The slowest promise is the deadline of 3 s and a second more; the rest is for starting and busy cores.
constexpr double kGoneBy = 15;

JobResult bench_with(const std::string& fault, int ranks, const std::string& more = "") {
  JobResult job = run_job(local(ranks, words("bench --seqlen 301 --num-heads 4 --num-heads-kv 2 --head-dim 20"
                                             " --mask causal --threads 1 --warmup 0 --iterations 2"
                                             " --deadline 3 --json -" +
                                             more)),
                          {{"RINGATTN_TEST_FAULT", fault}});
  EXPECT_LT(job.seconds.count(), kGoneBy);
  EXPECT_EQ(times_said(job, "RINGATTN_TEST_FAULT is on"), 1) << "a fault on purpose is never silent";
  return job;
}

TEST(FaultAtAHop, FailedTransferEndsAllRanksWithCode4) {
  for (const int ranks : {2, 5}) {
    expect_failure(bench_with("fail:rank=1,hop=0", ranks), 4, "ringattn: rank 1, hop 0: failed on purpose");
  }
}

TEST(FaultAtAHop, RankThatDiesTakesTheJobWithIt) {
  const JobResult job = bench_with("die:rank=2,hop=1", 3);
  EXPECT_EQ(job.exit_code, 137) << job.err;
  EXPECT_EQ(job.out, "");
}

TEST(FaultAtAHop, RankThatLeavesWithExitCode0IsNoSuccess) {
  const JobResult job = bench_with("exit:rank=1,hop=1", 3);
  EXPECT_NE(job.exit_code, 0) << job.err;
  EXPECT_EQ(job.out, "");
}

TEST(FaultAtAHop, SilentRankIsGivenUpAtTheDeadline) {
  const JobResult job = bench_with("vanish:rank=0,hop=1", 4);
  EXPECT_EQ(job.exit_code, 4) << job.err;
  EXPECT_TRUE(has(job.err, "hop 1: timed out after 3."));
  EXPECT_TRUE(has(job.err, "rank 0"));
  EXPECT_EQ(job.out, "");
}

TEST(FaultAtAHop, WrongSizeIsRefusedWithBothSizes) {
  const JobResult job = bench_with("truncate:rank=0,hop=1", 3);
  EXPECT_EQ(job.exit_code, 4) << job.err;
  EXPECT_TRUE(has(job.err, "rank 1, hop 1: rank 0 sends "));
  EXPECT_TRUE(has(job.err, " bytes, ")) << "what came";
  EXPECT_TRUE(has(job.err, " are expected")) << "and what should have";
  EXPECT_EQ(job.out, "");
}

// One flipped bit, the top one of an exponent, and the check of the program itself must find it.
TEST(FaultAtAHop, CorruptedBlockIsWrongNumbersAndCode1) {
  for (const auto& [fault, ranks] :
       {std::pair{"corrupt:rank=1,hop=0", 2}, std::pair{"corrupt:rank=4,hop=2", 5}}) {
    const JobResult job = bench_with(fault, ranks);
    EXPECT_EQ(job.exit_code, 1) << job.err;
    EXPECT_EQ(times_said(job, "wrong numbers: "), 1) << job.err;
    EXPECT_FALSE(report_of(job).at("check").at("passed").get<bool>());
  }
}

TEST(FaultAtAHop, LateTransferIsWaitedForUpToTheDeadline) {
  const JobResult late = bench_with("delay:rank=1,hop=1,ms=400", 3);
  EXPECT_EQ(late.exit_code, 0) << late.err;
  const nlohmann::json report = report_of(late);
  EXPECT_TRUE(report.at("check").at("passed").get<bool>());
  EXPECT_GE(report.at("seconds").at("min").get<double>(), 0.4) << "both iterations are late";

  const JobResult too_late = bench_with("delay:rank=1,hop=1,ms=20000", 3);
  EXPECT_EQ(too_late.exit_code, 4) << too_late.err;
  EXPECT_TRUE(has(too_late.err, "timed out after 3."));
}

// "One rank throws, catches, MPI_Finalize" is a deadlock in programs that do not abort: faults.md section 1.
TEST(FaultAtAHop, UnknownExceptionOfOneRankIsABugAndEndsAll) {
  const JobResult job = bench_with("throw:rank=3,hop=1", 4);
  expect_failure(job, 70, "ringattn: rank 3: thrown on purpose at hop 1 (internal error)");
}

TEST(FaultAtAHop, RankWithoutMemoryEndsAllWithCode6) {
  expect_failure(bench_with("oom:rank=0,hop=1", 3), 6, "ringattn: rank 0: out of memory on purpose at hop 1");
}

// The same at a transfer of gradients, which backward alone has.
JobResult gradients_with(const std::string& fault) {
  return bench_with(fault + ",channel=1", 3, " --direction backward");
}

TEST(FaultAtAGradientHop, FailedTransferEndsAllRanksWithCode4) {
  expect_failure(gradients_with("fail:rank=1,hop=1"), 4, "ringattn: rank 1, hop 1: failed on purpose");
}

TEST(FaultAtAGradientHop, RankThatDiesTakesTheJobWithIt) {
  const JobResult job = gradients_with("die:rank=2,hop=1");
  EXPECT_EQ(job.exit_code, 137) << job.err;
  EXPECT_EQ(job.out, "");
  EXPECT_EQ(gradients_with("kill:rank=0,hop=2").exit_code, 137);
}

TEST(FaultAtAGradientHop, SilentRankIsGivenUpAtTheDeadline) {
  for (const char* fault : {"vanish:rank=0,hop=1", "vanish:rank=0,hop=2"}) {
    const JobResult job = gradients_with(fault);
    EXPECT_EQ(job.exit_code, 4) << job.err;
    EXPECT_GE(job.seconds.count(), 3) << "not before the deadline";
    EXPECT_TRUE(has(job.err, "rank 0"));
    EXPECT_TRUE(has(job.err, "timed out after "));
    EXPECT_EQ(job.out, "");
  }
}

TEST(FaultAtAGradientHop, LateTransferIsWaitedFor) {
  const JobResult late = gradients_with("delay:rank=1,hop=1,ms=400");
  EXPECT_EQ(late.exit_code, 0) << late.err;
  EXPECT_GE(report_of(late).at("seconds").at("min").get<double>(), 0.4);
}

// The top bit of an exponent, and the keys' check must find it. All keys are checked: the bit may be
// anywhere.
TEST(FaultAtAGradientHop, CorruptedSumIsWrongNumbersAndCode1) {
  const JobResult job = bench_with("corrupt:rank=1,hop=1,channel=1", 3, " --direction both --check-rows 301");
  EXPECT_EQ(job.exit_code, 1) << job.err;
  EXPECT_EQ(times_said(job, "wrong numbers: d"), 1) << job.err;
}

TEST(FaultAtAHop, StoppedOrKilledRankDoesNotHoldTheOthers) {
  EXPECT_EQ(bench_with("kill:rank=1,hop=0", 2).exit_code, 137);
  EXPECT_EQ(bench_with("stop:rank=1,hop=0", 2).exit_code, 4);
}

}  // namespace
}  // namespace ringattn::test
