// Output that cannot be written, on all ranks or on one alone: the job fails naming it, a file that has the
// name stays as it is, byte for byte, and nothing partial is left.
#include <gtest/gtest.h>

#include "tests/faults/run_case.h"

namespace ringattn::test {
namespace {

void expect_refused(RunCase& files, const std::string& out, int ranks) {
  files.out = out;
  const JobResult job = run_job(local(ranks, files.arguments()));
  expect_failure(job, 3, "ringattn: rank 0: " + out + ": ");
  files.expect_untouched();
}

TEST(OutputFile, IsReplacedWhenAllIsWell) {
  RunCase files;
  const JobResult job = run_job(local(3, files.arguments()));
  EXPECT_EQ(job.exit_code, 0) << job.err;
  EXPECT_EQ(contents(files.out).size(), 128u + 31 * 4 * 8 * sizeof(float)) << "a header and the shape of q";
  EXPECT_EQ(files.scratch.names().size(), files.inputs.size()) << "no temporary file";
}

TEST(OutputFile, InAMissingFolderIsRefused) {
  RunCase files;
  expect_refused(files, files.scratch.path("no_such_folder/out.npy"), 3);
}

// These hold for root, too, who may write where nobody else may.
TEST(OutputFile, InAFileInsteadOfAFolderIsRefused) {
  RunCase files;
  expect_refused(files, files.q + "/out.npy", 2);
}

TEST(OutputFile, InAFileSystemThatTakesNoFilesIsRefused) {
  RunCase files;
  expect_refused(files, "/proc/out.npy", 2);
}

TEST(OutputFile, WithTheNameOfAFolderIsRefused) {
  RunCase files;
  const std::string folder = files.scratch.path("folder.npy");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  files.inputs = files.scratch.names();
  expect_refused(files, folder, 3);
}

TEST(OutputFile, OfLseThatCannotBeWrittenLeavesTheOtherAlone) {
  const RunCase files;
  const std::string lse = files.scratch.path("no_such_folder/lse.npy");
  const JobResult job = run_job(local(3, files.arguments() + Words{"--lse", lse}));
  expect_failure(job, 3, "ringattn: rank 0: " + lse + ": ");
  files.expect_untouched();
}

TEST(OutputFile, OfOneRankThatHasAnotherNameForItIsADisagreement) {
  RunCase files, other;
  const JobResult job = run_job(mpirun({{2, files.arguments()}, {1, [&] {
                                                                   Words odd = files.arguments();
                                                                   *(std::ranges::find(odd, "--out") + 1) =
                                                                       other.out;
                                                                   return odd;
                                                                 }()}}));
  expect_failure(job, 2, "ringattn: ranks disagree: rank 2: out " + other.out + ", others " + files.out);
  files.expect_untouched();
  other.expect_untouched();
}

// Case A10 (c): the disk is full for rank 2 alone, here by a limit on the size of files. Rank 2's rows lie
// beyond 8 MiB of an output of 16; below the limit there is room for what MPI itself needs.
TEST(OutputFile, ThatRank2CannotWriteEndsAllRanksNamingIt) {
  RunCase files;
  files.q = files.scratch.file("large_q.npy", f32_npy("(1, 1024, 16, 256)", 1024 * 16 * 256));
  files.k = files.v = files.scratch.file("large_k.npy", f32_npy("(1, 1024, 1, 256)", 1024 * 256));
  files.inputs = files.scratch.names();
  const Words arguments = files.arguments() + words("--window 0,0 --layout contiguous");
  const JobResult job = run_job(
      mpirun({{2, arguments}, {1, arguments, limited("trap '' XFSZ; ulimit -f 8192")}, {1, arguments}}));
  expect_failure(job, 3, "ringattn: rank 2: ");
  EXPECT_TRUE(has(job.err, "out.npy"));
  EXPECT_FALSE(has(job.err, ".partial")) << "the file is called by its final name";
  EXPECT_TRUE(has(job.err, "File too large")) << "and the system's reason";
  files.expect_untouched();
}

// The same without catching the signal: rank 2 dies of SIGXFSZ in the middle of writing.
TEST(OutputFile, OfARankThatDiesWhileItWritesIsNotPublished) {
  RunCase files;
  files.q = files.scratch.file("large_q.npy", f32_npy("(1, 1024, 16, 256)", 1024 * 16 * 256));
  files.k = files.v = files.scratch.file("large_k.npy", f32_npy("(1, 1024, 1, 256)", 1024 * 256));
  const Words arguments = files.arguments() + words("--window 0,0 --layout contiguous");
  const JobResult job =
      run_job(mpirun({{2, arguments}, {1, arguments, limited("ulimit -f 8192")}, {1, arguments}}));
  EXPECT_NE(job.exit_code, 0) << job.err;
  EXPECT_EQ(contents(files.out), RunCase::kEarlier);
}

// Numbers that the check finds wrong are reported and not published.
TEST(OutputFile, WithWrongNumbersIsNotPublished) {
  const RunCase files;
  for (const char* fault : {"output-nan", "output-inf", "output-off"}) {
    const JobResult job =
        run_job(local(3, files.arguments() + words("--json -")), {{"RINGATTN_TEST_FAULT", fault}});
    EXPECT_EQ(job.exit_code, 1) << fault << ": " << job.err;
    EXPECT_EQ(times_said(job, "wrong numbers: "), 1) << job.err;
    EXPECT_FALSE(report_of(job).at("check").at("passed").get<bool>()) << fault;
    files.expect_untouched();
  }
}

TEST(ReportFile, ThatCannotBeWrittenFailsBeforeTheWork) {
  const RunCase files;
  const std::string json = files.scratch.path("no_such_folder/report.json");
  const JobResult job = run_job(local(2, files.arguments() + Words{"--json", json}));
  expect_failure(job, 3, "ringattn: rank 0: " + json + ": ");
  files.expect_untouched();
}

}  // namespace
}  // namespace ringattn::test
