// One rank is given another value of one option: every such option of the problem and of the work is compared
// before the first byte moves, and the one that differs is named with both values.
#include <gtest/gtest.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

constexpr double kAtOnce = 15;  // starting the job included, on busy cores

struct Different {
  const char *name, *others, *odd, *words;
  // The test's name in CTest.
  friend void PrintTo(const Different& d, std::ostream* to) { *to << d.name; }
};

class RanksThatDisagree : public ::testing::TestWithParam<Different> {};

// 3 ranks, of which the last one is the odd one; each row is one job.
TEST_P(RanksThatDisagree, AllEndWithCode2AndOneMessage) {
  const Different different = GetParam();
  const Words always = words("bench --head-dim 20 --threads 1 --deadline 5 --json -");
  const JobResult job =
      run_job(mpirun({{2, always + words(different.others)}, {1, always + words(different.odd)}}));
  EXPECT_LT(job.seconds.count(), kAtOnce);
  expect_failure(job, 2, "ringattn: ranks disagree: rank 2: " + std::string(different.words) + "\n");
}

INSTANTIATE_TEST_SUITE_P(
    Option, RanksThatDisagree,
    ::testing::Values(
        Different{"seqlen", "--seqlen 301", "--seqlen 302", "seqlen_q 302, others 301"},
        Different{"seqlen_k", "--seqlen-q 31 --seqlen-k 301", "--seqlen-q 31 --seqlen-k 300",
                  "seqlen_k 300, others 301"},
        Different{"batch", "--seqlen 301", "--seqlen 301 --batch 2", "batch 2, others 1"},
        Different{"num_heads", "--seqlen 301 --num-heads-kv 2 --num-heads 4",
                  "--seqlen 301 --num-heads-kv 2 --num-heads 6", "num_heads 6, others 4"},
        Different{"num_heads_kv", "--seqlen 301 --num-heads-kv 2", "--seqlen 301 --num-heads-kv 4",
                  "num_heads_kv 4, others 2"},
        Different{"head_dim_v", "--seqlen 301", "--seqlen 301 --head-dim-v 10", "head_dim_v 10, others 20"},
        Different{"dtype", "--seqlen 301", "--seqlen 301 --dtype bf16", "dtype bf16, others f32"},
        Different{"layout", "--seqlen 301", "--seqlen 301 --layout striped",
                  "layout_q striped, others zigzag"},
        Different{"softmax_scale", "--seqlen 301 --softmax-scale 0.5", "--seqlen 301 --softmax-scale 0.25",
                  "softmax_scale 0.25, others 0.5"},
        Different{"mask", "--seqlen 301", "--seqlen 301 --mask causal", "mask causal, others full"},
        Different{"rope", "--seqlen 301 --rope half", "--seqlen 301 --rope interleaved",
                  "rope interleaved, others half"},
        Different{"rope_base", "--seqlen 301 --rope half", "--seqlen 301 --rope half --rope-base 500000",
                  "rope_base 500000, others 10000"},
        Different{"position_offset", "--seqlen 301 --rope half",
                  "--seqlen 301 --rope half --position-offset 7", "rope_position_offset 7, others 0"},
        Different{"iterations", "--seqlen 301", "--seqlen 301 --iterations 6", "iterations 6, others 5"},
        Different{"warmup", "--seqlen 301", "--seqlen 301 --warmup 2", "warmup 2, others 1"},
        Different{"mode", "--seqlen 301", "--seqlen 301 --mode blocking", "mode blocking, others overlap"},
        Different{"seed", "--seqlen 301", "--seqlen 301 --seed 5", "seed 5, others 0"},
        Different{"check_rows", "--seqlen 301", "--seqlen 301 --check-rows 3", "check_rows 3, others 16"}));

// With two ranks nobody is in the majority, and with five the odd one may be in the middle.
TEST(RanksThatDisagreeElsewhere, TwoRanksNameTheSecond) {
  const JobResult job = run_job(mpirun({{1, words("bench --seqlen 301")}, {1, words("bench --seqlen 300")}}));
  expect_failure(job, 2, "ringattn: ranks disagree: rank 1: seqlen_q 300, others 301");
}

TEST(RanksThatDisagreeElsewhere, OddOneAmongFiveIsNamedWhereverItIs) {
  const Words usual = words("bench --seqlen 301"), odd = words("bench --seqlen 301 --seed 9");
  expect_failure(run_job(mpirun({{1, odd}, {4, usual}})), 2, "ranks disagree: rank 0: seed 9, others 0");
  expect_failure(run_job(mpirun({{2, usual}, {1, odd}, {2, usual}})), 2,
                 "ranks disagree: rank 2: seed 9, others 0");
}

// A rank that runs another subcommand does not even read the same options.
TEST(RanksThatDisagreeElsewhere, OtherSubcommandIsADisagreement) {
  const JobResult job = run_job(mpirun({{2, words("bench --seqlen 301")}, {1, words("info")}}));
  expect_failure(job, 2, "ringattn: ranks disagree: rank 2: subcommand info, others bench");
}

}  // namespace
}  // namespace ringattn::test
