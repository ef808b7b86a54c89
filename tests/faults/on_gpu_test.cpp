// Ranks of MPI on simulated GPUs (tests/simt), each process with its own: how they choose what carries the
// blocks, what they refuse, and how they end when the host's link fails.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

const std::string kSmall =
    "bench --seqlen 53 --num-heads 2 --head-dim 16 --mask causal --iterations 1 --warmup 0 --check-rows 3 "
    "--threads 1 --json - ";

JobResult on_gpus(int ranks, int gpus, const std::string& arguments, Environment more = {}) {
  Words command = local(ranks, words(kSmall + arguments));
  *(std::ranges::find(command, "--") + 1) = RINGATTN_ON_HARNESS;
  more["SIMT_DEVICES"] = std::to_string(gpus);
  return run_job(command, more);
}

TEST(MpiOnGpu, RanksThatShareAGpuAreStagedAndTheReportSaysWhy) {
  const JobResult job = on_gpus(3, 1, "--direction both");
  ASSERT_EQ(job.exit_code, 0) << job.err;
  const auto report = report_of(job);
  EXPECT_TRUE(report["backend"].get<std::string>().starts_with("cuda/"));
  EXPECT_EQ(report["communicator"], "staged(mpi)");
  const std::string why = report["communicator_why"];
  EXPECT_NE(why.find("ranks 0 and 1 compute on one GPU (simt sm_90, "), std::string::npos) << why;
  EXPECT_NE(why.find("which NCCL refuses; rank 0: its mpi does not claim"), std::string::npos) << why;
  EXPECT_EQ(report["check"]["passed"], true);
  EXPECT_EQ(report["device"]["gpus_in_use"], 1);
}

TEST(MpiOnGpu, EachRankTakesTheGpuOfItsNumberOnTheMachine) {
  const JobResult job = on_gpus(3, 4, "--communicator mpi");
  ASSERT_EQ(job.exit_code, 0) << job.err;
  const auto report = report_of(job);
  EXPECT_EQ(report["communicator"], "staged(mpi)");
  EXPECT_EQ(report["communicator_why"], "rank 0: its mpi does not claim to carry device memory");
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(report["per_rank"][rank]["device"]["index"], rank);
}

TEST(MpiOnGpu, AWordThatTheClaimDoesNotKnowIsRefusedByAll) {
  const JobResult job = on_gpus(2, 2, "--communicator mpi", {{"RINGATTN_MPI_DEVICE", "on"}});
  expect_failure(job, 2, "RINGATTN_MPI_DEVICE is 'on'");
}

TEST(MpiOnGpu, NcclIsRefusedForRanksThatShareAGpu) {
  const JobResult job = on_gpus(2, 1, "--communicator nccl");
  expect_failure(job, 2, "--communicator is 'nccl', and ranks 0 and 1 compute on one GPU");
  EXPECT_EQ(errors_said(job), 1) << job.err;
}

TEST(MpiOnGpu, ARankWithoutAGpuIsNamedIfTheOthersInsist) {
  const Words arguments = words(kSmall + "--backend cuda");
  Words command = mpirun({{1, arguments}, {1, arguments, words("env SIMT_DRIVER=0")}});
  for (std::string& word : command) {
    if (word.ends_with("launch/ringattn")) word = RINGATTN_ON_HARNESS;
  }
  expect_failure(run_job(command), 5, "rank 1: backend cuda cannot be used: no CUDA driver");
}

// faults.md: what is lost ends the job at the deadline, by the rank, hop and size.
TEST(MpiOnGpu, ATransferThatIsLostEndsTheJobAtItsDeadline) {
  const JobResult job = on_gpus(2, 1, "--deadline 2", {{"RINGATTN_TEST_FAULT", "vanish:rank=1,hop=0"}});
  EXPECT_EQ(job.exit_code, 4) << job.err;
  EXPECT_LT(job.seconds.count(), 30);
}

}  // namespace
}  // namespace ringattn::test
