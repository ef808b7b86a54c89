// A rank or the launcher dies in the middle of the work: the job ends within seconds and nothing is left.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/faults/commands.h"
#include "tests/faults/job.h"

namespace ringattn::test {
namespace {

// faults.md section 1 promises 3 s on a quiet machine; this is for two busy cores.
constexpr double kSecondsAfterDeath = 10;

// Hours of short iterations. The progress line tells when the ring turns.
const Words kLong = words(
    "bench --seqlen 1009 --num-heads 4 --num-heads-kv 2 --head-dim 64 --mask causal --threads 1"
    " --iterations 1000000 --check-rows 0 --deadline 60 --progress on");
constexpr const char* kTurning = "timed iteration 2 of";

struct Death {
  int ranks, victim;
  std::chrono::milliseconds after;  // the first iteration
  // The test's name in CTest.
  friend void PrintTo(const Death& d, std::ostream* to) { *to << "rank_" << d.victim << "_of_" << d.ranks; }
};

class RankKilled : public ::testing::TestWithParam<Death> {};

TEST_P(RankKilled, EndsTheJobInSecondsAndLeavesNothing) {
  const auto [ranks, victim, after] = GetParam();
  Job job(local(ranks, kLong));
  job.wait_for_words(kTurning);
  const pid_t pid = job.wait_for_rank(victim);
  std::this_thread::sleep_for(after);
  const auto killed = Clock::now();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const JobResult result = finish_clean(job, Seconds(60));
  EXPECT_LT(Seconds(result.ended - killed).count(), kSecondsAfterDeath);
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;  // mpirun's code, passed through
  EXPECT_TRUE(has(result.err, "process rank " + std::to_string(victim)));
  EXPECT_TRUE(has(result.err, "signal 9")) << "the dead rank is named";
  EXPECT_EQ(result.out, "");
}

INSTANTIATE_TEST_SUITE_P(AtRandomMoments, RankKilled,
                         ::testing::Values(Death{2, 0, std::chrono::milliseconds(0)},
                                           Death{2, 1, std::chrono::milliseconds(37)},
                                           Death{3, 2, std::chrono::milliseconds(211)},
                                           Death{4, 1, std::chrono::milliseconds(503)},
                                           Death{5, 3, std::chrono::milliseconds(907)}));

// While MPI starts, other ranks may not even know the dead one yet.
TEST(RankKilled, WhileItStartsEndsTheJobToo) {
  Job job(local(3, kLong));
  ASSERT_EQ(kill(job.wait_for_rank(1), SIGKILL), 0);
  const auto killed = Clock::now();
  const JobResult result = finish_clean(job, Seconds(60));
  EXPECT_LT(Seconds(result.ended - killed).count(), kSecondsAfterDeath);
  EXPECT_NE(result.exit_code, 0) << result.err;
}

TEST(LauncherKilled, LeavesNoOrphans) {
  Job job(local(3, kLong));
  job.wait_for_words(kTurning);
  ASSERT_EQ(job.processes().size(), 4u) << "mpirun and its ranks";
  ASSERT_EQ(kill(job.launcher(), SIGKILL), 0);
  EXPECT_EQ(finish_clean(job, Seconds(60)).exit_code, 128 + SIGKILL);
}

// A run that is busy with files: their final names must not appear, and what has the name stays as it was.
void end_a_run_with(int signal) {
  Scratch scratch;
  const auto tensor = [&](const char* name) {
    const std::string shape = "(1, 4096, 8, 64)";
    return scratch.file(name, npy(npy_dictionary("<f4", shape), std::string(4096 * 8 * 64 * 4, '\0')));
  };
  const std::string q = tensor("q.npy"), out = scratch.file("out.npy", "of an earlier run");
  // Rank 1 sleeps for a minute before it begins, so that the signal comes while the output is pending.
  Job job(local(3, Words{"run", "--q", q, "--k", q, "--v", q, "--out", out, "--lse", scratch.path("lse.npy"),
                         "--progress", "on"}),
          {{"RINGATTN_TEST_FAULT", "sleep:rank=1,ms=60000"}});
  job.wait_for_words("computing");
  const auto sent = Clock::now();
  ASSERT_EQ(kill(job.launcher(), signal), 0);
  const JobResult result = finish_clean(job, Seconds(60));
  EXPECT_LT(Seconds(result.ended - sent).count(), kSecondsAfterDeath);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(contents(out), "of an earlier run");
  EXPECT_FALSE(std::filesystem::exists(scratch.path("lse.npy")));
}

TEST(LauncherSignalled, TermEndsAllRanksAndNoOutputGetsItsName) { end_a_run_with(SIGTERM); }
TEST(LauncherSignalled, InterruptEndsAllRanksAndNoOutputGetsItsName) { end_a_run_with(SIGINT); }

}  // namespace
}  // namespace ringattn::test
