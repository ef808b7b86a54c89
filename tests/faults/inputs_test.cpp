// Input that cannot be used, on all ranks or on one alone: exit code 3, one message that names the file and,
// where it is one rank's trouble, the rank; and no output.
#include <gtest/gtest.h>

#include "tests/faults/run_case.h"

namespace ringattn::test {
namespace {

// 3 ranks with the usual files and, in their middle or at their end, one with another K.
JobResult run_with_odd_k(const RunCase& usual, const std::string& k, int before, int after) {
  RunCase odd;
  Words odd_arguments = usual.arguments();
  *(std::ranges::find(odd_arguments, "--k") + 1) = k;
  std::vector<RankGroup> groups{{before, usual.arguments()}, {1, odd_arguments}};
  if (after > 0) groups.push_back({after, usual.arguments()});
  return run_job(mpirun(groups));
}

// Case A10 (a).
TEST(InputOfOneRank, MissingFileEndsAllRanksNamingRankAndFile) {
  const RunCase files;
  const std::string missing = files.scratch.path("no_such_k.npy");
  for (const auto& [before, after] : {std::pair{2, 1}, std::pair{2, 0}, std::pair{2, 2}}) {
    const JobResult job = run_with_odd_k(files, missing, before, after);
    expect_failure(job, 3, "ringattn: rank 2: " + missing + ": ");
    EXPECT_LT(job.seconds.count(), 30) << "case A10";
    files.expect_untouched();
  }
}

// Case A10 (b), with the head_dim of this fixture.
TEST(InputOfOneRank, OtherHeadDimEndsAllRanksNamingRankAndDimension) {
  RunCase files;
  const std::string narrow = files.scratch.file("narrow.npy", f32_npy("(1, 31, 2, 7)", 31 * 2 * 7));
  files.inputs = files.scratch.names();
  const JobResult job = run_with_odd_k(files, narrow, 2, 1);
  expect_failure(
      job, 3,
      "ringattn: rank 2: head_dim differs: " + files.q + " [1, 31, 4, 8] and " + narrow + " [1, 31, 2, 7]");
  files.expect_untouched();
}

// A file that is right in itself, only not that of the others.
TEST(InputOfOneRank, OtherShapeOfAllItsFilesIsADisagreement) {
  const RunCase files;
  RunCase shorter;
  shorter.q = shorter.scratch.file("q.npy", f32_npy("(1, 29, 4, 8)", 29 * 4 * 8));
  shorter.out = files.out;
  const JobResult job =
      run_job(mpirun({{2, files.arguments()}, {1, shorter.arguments()}, {1, files.arguments()}}));
  expect_failure(job, 2, "ringattn: ranks disagree: rank 2: seqlen_q 29, others 31");
  files.expect_untouched();
  shorter.expect_untouched();
}

TEST(InputOfOneRank, TruncatedFileEndsAllRanksNamingRankAndFile) {
  RunCase files;
  const std::string whole = contents(files.k);
  const std::string cut = files.scratch.file("cut.npy", whole.substr(0, whole.size() - 1));
  files.inputs = files.scratch.names();
  expect_failure(run_with_odd_k(files, cut, 2, 0), 3, "ringattn: rank 2: " + cut + ": ");
  files.expect_untouched();
}

struct Lie {
  const char* name;
  std::string file_name, bytes, said;
  // The test's name in CTest.
  friend void PrintTo(const Lie& d, std::ostream* to) { *to << d.name; }
};

class InputOfAllRanks : public ::testing::TestWithParam<Lie> {};

// faults.md section 5, through the whole program.
TEST_P(InputOfAllRanks, ThatLiesIsRefusedNamingTheFile) {
  const Lie lie = GetParam();
  RunCase files;
  files.k = files.scratch.file(lie.file_name, lie.bytes);
  const std::string path = files.k;
  if (lie.file_name.ends_with(".safetensors")) files.k += ":k";
  files.inputs = files.scratch.names();
  const JobResult job = run_job(local(3, files.arguments()));
  EXPECT_EQ(job.exit_code, 3) << job.err;
  EXPECT_EQ(times_said(job, "ringattn: rank 0: "), 1) << job.err;
  EXPECT_TRUE(has(job.err, path));
  EXPECT_TRUE(has(job.err, lie.said));
  EXPECT_EQ(job.out, "");
  files.expect_untouched();
}

const std::string kData(31 * 2 * 8 * 4, '\0');

INSTANTIATE_TEST_SUITE_P(
    Lies, InputOfAllRanks,
    ::testing::Values(
        Lie{"empty", "k_empty.npy", "", "k_empty.npy"},
        Lie{"cut_in_its_data", "k_cut.npy", npy(npy_dictionary("<f4", "(1, 31, 2, 8)"), kData.substr(7)),
            "1977"},
        Lie{"longer_than_promised", "k_long.npy", npy(npy_dictionary("<f4", "(1, 31, 2, 8)"), kData + "x"),
            "1985"},
        Lie{"shape_of_16_TiB", "k_huge.npy",
            npy(npy_dictionary("<f4", "(1, 4398046511104, 1, 1)"), std::string(64, '\0')), "k_huge.npy"},
        Lie{"shape_that_overflows", "k_wide.npy",
            npy(npy_dictionary("<f4", "(4611686018427387904, 4, 4, 4)"), std::string(64, '\0')),
            "k_wide.npy"},
        Lie{"big_endian", "k_big.npy", npy(npy_dictionary(">f4", "(1, 31, 2, 8)"), kData), ">f4"},
        Lie{"safetensors_offsets_past_the_end", "k.safetensors",
            safetensors(R"({"k":{"dtype":"F32","shape":[1,31,2,8],"data_offsets":[0,1984]}})",
                        kData.substr(1)),
            "1983"},
        Lie{"safetensors_without_that_name", "other.safetensors",
            safetensors(R"({"x":{"dtype":"F32","shape":[1,31,2,8],"data_offsets":[0,1984]}})", kData), "k"},
        Lie{"safetensors_header_of_2_to_the_62", "long_header.safetensors",
            little_endian(std::uint64_t{1} << 62, 8) + "{}", "long_header.safetensors"},
        Lie{"safetensors_nested_without_end", "deep.safetensors", safetensors(std::string(200000, '['), ""),
            "deep.safetensors"}));

}  // namespace
}  // namespace ringattn::test
