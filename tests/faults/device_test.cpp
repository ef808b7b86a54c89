// GPUs that are asked for and are not there: code 5 from every rank, the reason once, nothing half-written.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cuda/devices.h"
#include "tests/faults/commands.h"
#include "tests/faults/report.h"
#include "tests/files/scratch.h"

namespace ringattn::test {
namespace {

// Why no GPU can be used by this build on this machine, as jobs see it: without a driver, or with its GPUs
// hidden.
std::string reason() {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  return find_cuda_devices().unavailable;
}

class WithoutGpu : public ::testing::TestWithParam<int> {};

TEST_P(WithoutGpu, BenchOnCudaEndsAllRanksWithCode5AndTheReason) {
  const JobResult job = run_job(local(GetParam(), words("bench --seqlen 301 --backend cuda")));
  expect_failure(job, 5, "backend cuda cannot be used: " + reason());
  EXPECT_EQ(errors_said(job), 1) << job.err;
}

TEST_P(WithoutGpu, NcclAndAVersionOfTheKernelsAskForOneToo) {
  for (const char* asks : {"bench --seqlen 301 --communicator nccl", "bench --seqlen 301 --isa sm_80"}) {
    expect_failure(run_job(local(GetParam(), words(asks))), 5, "backend cuda cannot be used: ");
  }
}

TEST_P(WithoutGpu, RunOnCudaWritesNothing) {
  const Scratch scratch;
  const std::string data = RINGATTN_DATA;
  const Words inputs{"--q", data + "/q.npy", "--k", data + "/k.npy", "--v", data + "/v.npy"};
  const JobResult job = run_job(
      local(GetParam(), words("run --backend cuda") + inputs + Words{"--out", scratch.path("out.npy")}));
  expect_failure(job, 5, "backend cuda cannot be used: ");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{});
}

TEST_P(WithoutGpu, BackendAutoComputesOnCpus) {
  const JobResult job = run_job(local(GetParam(), words("bench --seqlen 301 --num-heads 2 --head-dim 16 "
                                                        "--iterations 1 --warmup 0 --json -")));
  ASSERT_EQ(job.exit_code, 0) << job.err;
  const auto report = report_of(job);
  EXPECT_TRUE(report["backend"].get<std::string>().starts_with("cpu/"));
  EXPECT_TRUE(report["device"].is_null());
  EXPECT_EQ(report["clock"], "host");
  EXPECT_EQ(report["peak_source"], "measured");
  EXPECT_EQ(report["communicator"], "mpi");
}

INSTANTIATE_TEST_SUITE_P(Ranks, WithoutGpu, ::testing::Values(1, 2, 3));

TEST(BackendOfRanks, ThatDifferIsUsageAndNamesBoth) {
  const JobResult job = run_job(mpirun({{1, words("bench --seqlen 301 --threads 1 --backend cpu")},
                                        {1, words("bench --seqlen 301 --threads 1 --backend auto")}}));
  expect_failure(job, 2, "backend");
  EXPECT_TRUE(job.err.find("cpu") != std::string::npos && job.err.find("auto") != std::string::npos)
      << job.err;
}

}  // namespace
}  // namespace ringattn::test
