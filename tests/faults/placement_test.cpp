// Where ranks run and what their clocks say: bindings (case A2), containers (A37), the slowest rank (A33),
// and transfers hidden behind work (A1).
#include <gtest/gtest.h>
#include <sched.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

using Json = nlohmann::json;

int cpus_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

const Words kTwoThreads =
    words("bench --seqlen 301 --num-heads 2 --head-dim 20 --iterations 2 --threads 2 --json -");

// mpirun pins one or two ranks to a core each unless it is told otherwise.
TEST(Binding, ThatLeavesOneCpuForTwoThreadsIsReported) {
  if (cpus_here() < 2) GTEST_SKIP() << "one CPU: there is no other one to be kept from";
  for (const int ranks : {1, 2}) {
    const JobResult job = run_job(bare_mpirun(ranks, kTwoThreads));
    ASSERT_EQ(job.exit_code, 0) << job.err;
    const Json report = report_of(job);
    for (int r = 0; r < ranks; ++r) {
      EXPECT_EQ(times_said(job, "rank " + std::to_string(r) + ": allowed CPUs 1 < threads 2"), 1) << job.err;
      const Json& rank = report.at("per_rank").at(static_cast<std::size_t>(r));
      EXPECT_EQ(rank.at("cpus_allowed"), 1);
      EXPECT_EQ(rank.at("threads"), 2);
    }
    EXPECT_EQ(report.at("cpus_allowed"), 1);
    EXPECT_TRUE(report.at("oversubscribed").get<bool>());
  }
}

TEST(Binding, OfLaunchLocalKeepsNoRankFromAnyCpu) {
  if (cpus_here() < 2) GTEST_SKIP() << "one CPU: two threads share it in any case";
  const JobResult job = run_job(local(1, kTwoThreads));
  ASSERT_EQ(job.exit_code, 0) << job.err;
  EXPECT_EQ(times_said(job, "warning"), 0) << job.err;
  const Json report = report_of(job);
  EXPECT_EQ(report.at("cpus_allowed"), cpus_here());
  EXPECT_FALSE(report.at("oversubscribed").get<bool>());
}

// Case A37: root, more ranks than slots, and a container that refuses copies between processes.
TEST(Container, RunsMoreRanksThanCoresWithAndWithoutSingleCopy) {
  for (const Environment& environment :
       {Environment{}, Environment{{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}}}) {
    const int ranks = cpus_here() + 1;
    const JobResult job = run_job(
        local(ranks,
              words("bench --seqlen 4099 --num-heads 2 --head-dim 64 --mask causal --iterations 2 --json -")),
        environment);
    EXPECT_EQ(job.exit_code, 0) << job.err;
    EXPECT_EQ(times_said(job, "Read -1"), 0) << job.err;
    const Json report = report_of(job);
    EXPECT_EQ(report.at("ranks"), ranks);
    EXPECT_TRUE(report.at("check").at("passed").get<bool>());
  }
}

// Case A33: the time of a step is that of its slowest rank, and the spread over ranks is told.
TEST(Clock, OfTheSlowestRankIsTheOneReported) {
  const JobResult job =
      run_job(local(4, words("bench --seqlen 301 --num-heads 2 --head-dim 20 --window 0,0 --threads 1"
                             " --warmup 0 --iterations 3 --json -")),
              {{"RINGATTN_TEST_FAULT", "sleep:rank=1,ms=200"}});
  ASSERT_EQ(job.exit_code, 0) << job.err;
  const Json report = report_of(job);
  EXPECT_GE(report.at("seconds").at("min").get<double>(), 0.2);
  EXPECT_GE(report.at("seconds_over_ranks").at("max").get<double>(), 0.2);
  EXPECT_GE(report.at("per_rank").at(1).at("seconds").get<double>(), 0.2);
}

// Case A1 in small. A link on which a block takes kTransfer, beside the work of two hops of several times as
// long: with overlap the block arrives while it is computed on the one before. Both figures are times of
// waiting, so a slow machine makes the work longer and the comparison no closer.
TEST(Overlap, HidesAThrottledTransferBehindTheWork) {
  constexpr double kTransfer = 0.06;
  // K and V of 2048 rows, 2 heads of 128 floats each: 4 MiB and the padding of their panels.
  const double gbps = 2.0 * 2048 * 2 * 128 * 4 * 8 / kTransfer * 1e-9;
  const auto wait = [&](const std::string& mode) {
    const JobResult job =
        run_job(local(2, words("bench --seqlen 4096 --num-heads 8 --num-heads-kv 2 --head-dim 128 --threads 1"
                               " --warmup 0 --iterations 2 --check-rows 2 --json - --link-gbps " +
                               std::to_string(gbps) + " --mode " + mode)));
    EXPECT_EQ(job.exit_code, 0) << job.err;
    const Json report = report_of(job);
    EXPECT_GE(report.at("comm_seconds").get<double>(), 0.9 * kTransfer) << "the link is as slow as asked";
    // A hop is half of the work.
    EXPECT_GE(report.at("compute_seconds").get<double>(), 2 * 2 * kTransfer)
        << "there is work to hide behind";
    return report.at("wait_seconds").get<double>();
  };
  const double blocking = wait("blocking"), overlap = wait("overlap");
  EXPECT_GE(blocking, 0.9 * kTransfer);
  EXPECT_LT(overlap, 0.25 * blocking);
}

}  // namespace
}  // namespace ringattn::test
