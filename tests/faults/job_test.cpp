// The harness itself: what it reports must be able to be bad.
#include "tests/faults/job.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ringattn::test {
namespace {

std::vector<std::string> shell(const std::string& script) { return {"bash", "-c", script}; }

TEST(Job, TellsExitCodeAndBothStreamsApart) {
  const JobResult job = run_job(shell("echo one; echo two >&2; exit 6"));
  EXPECT_EQ(job.exit_code, 6);
  EXPECT_EQ(job.out, "one\n");
  EXPECT_EQ(job.err, "two\n");
}

TEST(Job, TellsDeathBySignalAs128AndItsNumber) {
  EXPECT_EQ(run_job(shell("kill -SEGV $$")).exit_code, 128 + SIGSEGV);
}

TEST(Job, GivesItsEnvironmentOnTopOfOurs) {
  const JobResult job = run_job(shell("echo $PATH; echo $RINGATTN_TEST_FAULT"),
                                {{"PATH", "/usr/bin:/bin"}, {"RINGATTN_TEST_FAULT", "x"}});
  EXPECT_EQ(job.out, "/usr/bin:/bin\nx\n");
}

TEST(Job, EndsAtItsLimitWithEverythingItStarted) {
  Job job(shell("sleep 60 & sleep 60"));
  ASSERT_TRUE(wait_until([&] { return job.processes().size() == 3; }, Seconds(10)));
  const JobResult result = job.finish(Seconds(0.1));
  EXPECT_TRUE(result.out_of_time);
  EXPECT_LT(result.seconds.count(), 30);
  EXPECT_TRUE(result.left_over.empty());
  EXPECT_TRUE(job.processes().empty());
}

TEST(Job, FindsWhatOutlivesTheLauncherEvenInAnotherSession) {
  Job job(shell("setsid sleep 60 >/dev/null 2>&1 & exit 0"));
  const JobResult result = job.finish(Seconds(10));
  EXPECT_FALSE(result.out_of_time);
  ASSERT_EQ(result.left_over.size(), 1u);
  EXPECT_TRUE(has(result.left_over[0], "(sleep)"));
  EXPECT_TRUE(wait_until([&] { return job.processes().empty(); }, Seconds(5))) << "and it is killed";
}

TEST(Job, KnowsItsOwnProcessesFromThoseOfAJobBesideIt) {
  Job one(shell("sleep 60")), other(shell("sleep 60"));
  ASSERT_TRUE(wait_until([&] { return other.processes().size() == 1; }, Seconds(10)));
  EXPECT_TRUE(one.finish(Seconds(0)).out_of_time);
  EXPECT_EQ(other.processes().size(), 1u);
}

TEST(Job, SaysWhichRankOrWordsItWaitedForInVain) {
  Job job(shell("echo ready >&2; sleep 60"));
  EXPECT_NO_THROW(job.wait_for_words("ready"));
  EXPECT_THROW(job.wait_for_words("never", Seconds(0.1)), std::runtime_error);
  EXPECT_THROW(job.wait_for_rank(0, Seconds(0.1)), std::runtime_error);
}

TEST(Job, DoesNotWaitForWordsOfAJobThatHasEnded) {
  Job job(shell("echo ready >&2; exit 3"));
  const auto began = Clock::now();
  EXPECT_THROW(job.wait_for_words("never", Seconds(60)), std::runtime_error);
  EXPECT_LT(Seconds(Clock::now() - began).count(), 30);
  EXPECT_NO_THROW(job.wait_for_words("ready"));
  EXPECT_EQ(job.finish(Seconds(10)).exit_code, 3);
}

}  // namespace
}  // namespace ringattn::test
