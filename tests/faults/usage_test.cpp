// Wrong command lines under mpirun: code 2 from every rank, one message, no hang.
#include <gtest/gtest.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

struct Wrong {
  const char *name, *arguments, *said;
  // The test's name in CTest.
  friend void PrintTo(const Wrong& d, std::ostream* to) { *to << d.name; }
};

class WrongCommandLine : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongCommandLine, EndsAllRanksWithCode2AndOneMessage) {
  const JobResult job = run_job(local(3, words(GetParam().arguments)));
  expect_failure(job, 2, GetParam().said);
  EXPECT_EQ(times_said(job, "ringattn: rank "), 1) << job.err;
  EXPECT_LT(job.seconds.count(), 20);
}

INSTANTIATE_TEST_SUITE_P(
    Each, WrongCommandLine,
    ::testing::Values(Wrong{"nothing", "", "subcommand is missing"},
                      Wrong{"unknown_subcommand", "train", "'train'"},
                      Wrong{"unknown_option", "bench --seqlen 301 --dropout 0.1",  // case A14
                            "'--dropout' is not an option of ringattn bench"},
                      Wrong{"negative_length", "bench --seqlen -1", "--seqlen is '-1'"},
                      Wrong{"heads_that_do_not_divide", "bench --seqlen 301 --num-heads 8 --num-heads-kv 3",
                            "num_heads is 8; allowed are multiples of num_heads_kv, which is 3"},
                      Wrong{"contradiction", "bench --seqlen 301 --mask causal --window 5,0",
                            "--window '5,0' contradicts --mask 'causal'"},
                      Wrong{"ranks_without_threads", "bench --seqlen 301 --ranks 3", "--ranks"},
                      Wrong{"threads_under_mpirun", "bench --seqlen 301 --communicator threads --ranks 3",
                            "--communicator is 'threads'"},
                      Wrong{"self_under_mpirun", "bench --seqlen 301 --communicator self",
                            "--communicator is 'self'"},
                      Wrong{"run_without_files", "run --out out.npy", "--q is missing"}));

TEST(WrongCommandLineOfOneRank, IsThatRanksNameInTheMessage) {
  const Words right = words("bench --seqlen 301 --threads 1"),
              wrong = words("bench --seqlen 30x --threads 1");
  const JobResult job = run_job(mpirun({{1, right}, {1, wrong}, {1, right}}));
  expect_failure(job, 2, "ringattn: rank 1: --seqlen is '30x'");
}

TEST(RightCommandLine, OfHelpAndInfoIsAnsweredOnce) {
  const JobResult help = run_job(local(3, words("bench --help")));
  EXPECT_EQ(help.exit_code, 0) << help.err;
  EXPECT_EQ(help.out.find("ringattn bench: "), help.out.rfind("ringattn bench: "));
  EXPECT_TRUE(has(help.out, "--seqlen"));
  EXPECT_EQ(run_job(local(2, words("info"))).exit_code, 0);
}

TEST(LauncherScript, RefusesRanksAndTimesThatAreNone) {
  const std::string script = local(1, {}).at(0);
  for (const char* wrong : {"-n 0 -- true", "-n x -- true", "-- true", "-n 2 --timeout 0 -- true", "-n 2"}) {
    EXPECT_EQ(run_job(Words{script} + words(wrong)).exit_code, 2) << wrong;
  }
}

// The time limit of the whole job, which also ends what no rank can notice: faults.md section 2, mpirun's
// 110.
TEST(LauncherScript, EndsTheJobAtItsTimeLimit) {
  Words command = local(2, words("bench --seqlen 1009 --iterations 1000000 --check-rows 0 --threads 1"));
  *(std::ranges::find(command, "--timeout") + 1) = std::to_string(3);
  const JobResult job = run_job(command);
  EXPECT_EQ(job.exit_code, 110) << job.err;
  EXPECT_GE(job.seconds.count(), 3);
  EXPECT_LT(job.seconds.count(), 20);
}

}  // namespace
}  // namespace ringattn::test
