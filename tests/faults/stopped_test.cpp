// A rank that stands still: the others give it up at their deadline and name it, and not before.
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

constexpr double kDeadline = 3;
// faults.md section 1 promises the deadline and a second on a quiet machine; this is for two busy cores.
constexpr double kGoneBy = 15;

Words bench(const std::string& more) {
  return words(
      "bench --seqlen 1009 --num-heads 4 --num-heads-kv 2 --head-dim 64 --mask causal --threads 1"
      " --deadline 3 --progress on " +
      more);
}

void expect_given_up(const JobResult& result, int rank, Clock::time_point stopped) {
  const double seconds = Seconds(result.ended - stopped).count();
  EXPECT_GE(seconds, kDeadline - 0.1);
  EXPECT_LT(seconds, kGoneBy);
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_TRUE(has(result.err, "timed out after 3.")) << "the deadline of the command line";
  EXPECT_TRUE(has(result.err, "rank " + std::to_string(rank)));
  // It must be named as the one that is waited for: "... waiting for 80 bytes from rank 1", "... for rank 1
  // to take 80 bytes", "... all_gather waiting for rank 1". The ranks that speak are its victims.
  const std::string name = "rank " + std::to_string(rank);
  EXPECT_TRUE(result.err.find("from " + name) != std::string::npos ||
              result.err.find("for " + name) != std::string::npos ||
              result.err.find("and " + name) != std::string::npos)
      << result.err;
  EXPECT_EQ(result.out, "");
}

struct Stop {
  int ranks, victim;
  // The test's name in CTest.
  friend void PrintTo(const Stop& d, std::ostream* to) { *to << "rank_" << d.victim << "_of_" << d.ranks; }
};

class RankStopped : public ::testing::TestWithParam<Stop> {};

TEST_P(RankStopped, IsGivenUpAtTheDeadlineAndNamed) {
  const auto [ranks, victim] = GetParam();
  Job job(local(ranks, bench("--iterations 1000000 --check-rows 0")));
  job.wait_for_words("timed iteration 2 of");
  const pid_t pid = job.wait_for_rank(victim);
  const auto stopped = Clock::now();
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  expect_given_up(finish_clean(job, Seconds(60)), victim, stopped);
}

INSTANTIATE_TEST_SUITE_P(Sizes, RankStopped, ::testing::Values(Stop{2, 1}, Stop{3, 0}, Stop{4, 2}));

// At a chosen hop the first to time out is the one that the stopped rank owes a block.
TEST(RankStoppedAtAHop, IsNamedWithHopSizeAndDirection) {
  const auto started = Clock::now();
  const JobResult result =
      run_job(local(5, bench("--iterations 1")), {{"RINGATTN_TEST_FAULT", "stop:rank=2,hop=1"}});
  expect_given_up(result, 2, started);
  EXPECT_TRUE(has(result.err, "rank 3, hop 1: timed out")) << "its next rank tells";
  EXPECT_TRUE(has(result.err, "bytes from rank 2 (0 arrived)"));
}

TEST(RankStoppedForASecond, IsNoReasonForAnAlarm) {
  Job job(local(3, bench("--iterations 500 --json -")));
  job.wait_for_words("timed iteration 2 of");
  const pid_t pid = job.wait_for_rank(1);
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_FALSE(job.has_said("timed iteration 500 of")) << "it was to be stopped while the ring turned";
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  const JobResult result = finish_clean(job, Seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(report_of(result).at("check").at("passed").get<bool>());
}

}  // namespace
}  // namespace ringattn::test
