// The program's command line as a user meets it: exit codes, streams, help, plan and info.
#include <gtest/gtest.h>

#include "tests/program/process.h"

namespace ringattn::test {
namespace {

TEST(CommandLine, UsageErrorsAreExitTwoOnStderrAlone) {
  for (const char* text :
       {"", "nonsense", "bench", "bench --seqlen 12x", "bench --seqlen 8 --dropout 0.1",
        "bench --seqlen 8 --isa AVX99", "run --q a.npy", "plan --seqlen 8", "info --seqlen 8",
        "bench --seqlen 8 --num-heads 6 --num-heads-kv 4", "bench --seqlen 8 --cu-seqlens 0,5,3"}) {
    const Ended ended = ringattn(words(text));
    EXPECT_EQ(ended.code, 2) << text;
    EXPECT_EQ(ended.out, "") << text;
    EXPECT_TRUE(ended.err.starts_with("ringattn: ")) << text << ": " << ended.err;
  }
}

TEST(CommandLine, AnUnknownInstructionSetIsRefusedWithTheKnownOnes) {
  const Ended ended = ringattn(words("bench --seqlen 8 --isa AVX99"));
  EXPECT_NE(ended.err.find("--isa is 'AVX99'"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("auto, "), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("sm_80"), std::string::npos) << ended.err;  // of the other backend
}

TEST(CommandLine, AMalformedThreadVariableIsNamed) {
  const Ended ended =
      start({.arguments = words("bench --seqlen 8"), .environment = {{"OMP_NUM_THREADS", "many"}}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_NE(ended.err.find("OMP_NUM_THREADS is 'many'"), std::string::npos) << ended.err;
}

TEST(CommandLine, HelpAndVersionGoToStdout) {
  for (const char* text : {"--help", "--version", "run --help", "bench --help", "plan --help", "info --help",
                           "bench --seqlen 8 --help"}) {
    const Ended ended = ringattn(words(text));
    EXPECT_EQ(ended.code, 0) << text;
    EXPECT_TRUE(ended.out.starts_with("ringattn")) << text;
    EXPECT_EQ(ended.err, "") << text;
  }
}

TEST(CommandLine, AFullStdoutIsNotSuccess) {
  const Ended ended = ringattn({"info", "--json", "/dev/full"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("/dev/full"), std::string::npos) << ended.err;
}

TEST(Info, NamesWhatThisBuildHas) {
  const Ended ended = ringattn(words("info --json -"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto json = json_lines(ended.out).at(0);
  EXPECT_FALSE(json["isas"].empty());
  EXPECT_EQ(json["threads"], 1);  // OMP_NUM_THREADS of these tests
  EXPECT_GE(json["cpus_allowed"], 1);
  EXPECT_TRUE(json.contains("mpi_library"));
  EXPECT_TRUE(json.contains("cuda_found"));
  EXPECT_TRUE(json["devices"].is_array());
  // Either a GPU can be used or the reason is there.
  EXPECT_EQ(json["cuda_unavailable"].is_string(), ended.err.find("none can be used: ") != std::string::npos);
  EXPECT_EQ(json["nccl_found"].is_null(), json["nccl_version"].is_null());
  EXPECT_NE(ended.err.find("instruction sets"), std::string::npos);
}

TEST(Plan, OfFourThousandRanksAndAHundredMillionTokensIsQuick) {
  const Ended ended = ringattn(
      words("plan --ranks 4096 --rank 4000 --seqlen 100000000 --mask causal --layout zigzag --json -"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = json_lines(ended.out);
  EXPECT_EQ(lines.size(), 1u + 4096u);  // the ring, and a line for each hop
  EXPECT_EQ(lines[0]["ranks"], 4096);
  EXPECT_EQ(lines[0]["hops"], 4096);
  EXPECT_EQ(lines[0]["visible_pairs"], std::int64_t{100000000} * 100000001 / 2);
  std::int64_t pairs = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) pairs += lines[i]["visible_pairs"].get<std::int64_t>();
  EXPECT_EQ(static_cast<double>(pairs), lines[0]["pairs_per_rank"]["mean"]);
}

// ceil((w - 1) / shard) hops besides the own one, not P - 1.
TEST(Plan, AWindowNeedsFewHops) {
  const Ended ended =
      ringattn(words("plan --ranks 64 --seqlen 6400 --window 150,0 --layout contiguous --json -"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = json_lines(ended.out);
  EXPECT_EQ(lines[0]["hops"], 3);
  EXPECT_EQ(lines[0]["messages_sent_per_rank"]["max"], 2);
  EXPECT_EQ(lines.size(), 65u);
  EXPECT_GT(lines[0]["balance"], 0.9);
}

TEST(Plan, ListsTheTilesOfARank) {
  const Ended ended =
      ringattn(words("plan --ranks 2 --rank 1 --tiles --seqlen 10 --mask causal --layout contiguous"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("hop 1: keys of rank 0, 5 rows, 1 tiles, 25 pairs"), std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("q [0, 5) k [0, 5)"), std::string::npos) << ended.out;
}

// What the CUDA kernel would hold and send is known on any machine and in any build; how fast it would be is
// not. 2 KV heads of 128 + 128 elements, 101 rows in 104: 2 x 104 x 256 x 2 bytes.
TEST(Plan, OfTheCudaKernelNeedsNoGpu) {
  const Ended ended = ringattn(words(
      "plan --ranks 3 --seqlen 303 --num-heads 4 --num-heads-kv 2 --dtype bf16 --layout contiguous --json - "
      "--backend cuda --link-gbps 1"));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto json = json_lines(ended.out).at(0);
  EXPECT_EQ(json["backend"], "cuda");
  EXPECT_EQ(json["bytes_sent_per_rank"]["max"], 2 * 2 * 104 * 256 * 2);
  EXPECT_NEAR(json["estimate"]["transfer_seconds"], 2 * 2 * 104 * 256 * 2 * 8e-9, 1e-9);
  EXPECT_NE(ended.err.find("cuda kernel"), std::string::npos) << ended.err;
  const bool no_gpu = ringattn(words("info")).out.find("none can be used") != std::string::npos;
  EXPECT_EQ(json["estimate"]["seconds"].is_null(), no_gpu) << ended.err;
  EXPECT_EQ(ended.err.find("compute not estimated, no GPU is here") != std::string::npos, no_gpu)
      << ended.err;
}

TEST(Plan, EstimatesTransfersOnlyOverALink) {
  const auto estimate = [](const std::string& options) {
    const Ended ended = ringattn(words("plan --ranks 3 --seqlen 300 --json - " + options));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return json_lines(ended.out).at(0)["estimate"];
  };
  EXPECT_TRUE(estimate("")["transfer_seconds"].is_null());
  EXPECT_NEAR(estimate("--link-latency-us 1000")["transfer_seconds"], 0.002, 1e-9);
  EXPECT_GT(estimate("--link-gbps 1")["transfer_seconds"], 0);
}

}  // namespace
}  // namespace ringattn::test
