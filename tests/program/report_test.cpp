#include "launch/report.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "launch/output.h"
#include "launch/steps.h"
#include "launch/units.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

// Case A22: B=1, L=1024, H=16, D=64.
const Problem kProblem{
    .shape = {.batch = 1, .num_heads = 16, .num_heads_kv = 16, .head_dim = 64, .head_dim_v = 64},
    .dtype = DType::f32,
    .mask = Mask::causal(1024, 1024),
    .rope = {},
    .softmax_scale = {}};

Report example() {
  Report r;
  r.problem = &kProblem;
  r.communicator = "mpi";
  r.backend = "cpu/AVX3";
  r.isa = "AVX3";
  r.seed = 0;
  r.iterations = 3;
  r.warmup = 1;
  r.ranks = {
      {.threads = 1, .cpus_allowed = 2, .seconds = 1, .fma_peak = 3e9, .bytes_sent = 10, .messages_sent = 1},
      {.threads = 2, .cpus_allowed = 1, .seconds = 3, .fma_peak = 1e9, .bytes_sent = 20, .messages_sent = 1}};
  r.hops = 2;
  r.balance = {.total_pairs = 30, .critical_pairs = 20, .ranks = 2};
  r.seconds = {.min = 1, .median = 2, .mean = 2, .max = 4};
  r.wait_seconds = 0.25;
  r.comm_seconds = 1;
  r.check = CheckOutcome{.rows = 16, .heads_per_row = 16, .num_heads = 16, .passed = true};
  return r;
}

TEST(Report, HasEveryFieldThatProgramsReadAndTheRightNumbers) {
  const nlohmann::json json = nlohmann::json::parse(json_of(example()).dump());
  for (const char* name : {"ranks",
                           "threads",
                           "cpus_allowed",
                           "oversubscribed",
                           "isa",
                           "communicator",
                           "backend",
                           "batch",
                           "seqlen_q",
                           "seqlen_k",
                           "num_heads",
                           "num_heads_kv",
                           "head_dim",
                           "head_dim_v",
                           "dtype",
                           "softmax_scale",
                           "rope",
                           "mask",
                           "layout",
                           "direction",
                           "mode",
                           "iterations",
                           "warmup",
                           "seed",
                           "visible_pairs",
                           "flops",
                           "flop_convention",
                           "seconds",
                           "tflops",
                           "tflops_per_rank",
                           "tokens_per_second",
                           "peak_instruction",
                           "fma_peak_tflops_per_rank",
                           "fraction_of_peak",
                           "hops",
                           "bytes_sent_per_rank",
                           "messages_sent_per_rank",
                           "compute_seconds",
                           "wait_seconds",
                           "comm_seconds",
                           "hidden_fraction",
                           "balance",
                           "workspace_bytes_per_rank",
                           "peak_rss_bytes_per_rank",
                           "check",
                           "per_rank"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  EXPECT_EQ(json["flops"], 2149580800.0);  // case A22, counting pairs exactly
  EXPECT_EQ(json["visible_pairs"], 1024 * 1025 / 2);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["threads"], 2);
  EXPECT_EQ(json["cpus_allowed"], 1);
  EXPECT_EQ(json["bytes_sent_per_rank"], 20);
  EXPECT_DOUBLE_EQ(json["tflops"], 2149580800.0 / 2 * 1e-12);
  EXPECT_DOUBLE_EQ(json["tflops_per_rank"], 2149580800.0 / 4 * 1e-12);
  EXPECT_DOUBLE_EQ(json["fma_peak_tflops_per_rank"], 2e-3);
  EXPECT_DOUBLE_EQ(json["fraction_of_peak"], 2149580800.0 / 4 / 2e9);
  EXPECT_DOUBLE_EQ(json["tokens_per_second"], 512);
  EXPECT_DOUBLE_EQ(json["hidden_fraction"], 0.75);
  EXPECT_DOUBLE_EQ(json["balance"], 0.75);
  EXPECT_EQ(json["seconds"]["max"], 4);
  EXPECT_EQ(json["seconds_over_ranks"]["mean"], 2);  // case A33
  EXPECT_EQ(json["check"]["rows"], 16);
  EXPECT_EQ(json["check"]["passed"], true);
}

// Case A22: L=1048576, H=32, D=128, full needs more than 32 bits and than an int of 64 bits times a rate.
TEST(Report, CountsFlopsOfLongSequences) {
  const Problem big{
      .shape = {.batch = 1, .num_heads = 32, .num_heads_kv = 32, .head_dim = 128, .head_dim_v = 128},
      .dtype = DType::f32,
      .mask = Mask::full(1048576, 1048576),
      .rope = {},
      .softmax_scale = {}};
  Report report = example();
  report.problem = &big;
  EXPECT_EQ(flops_of(report), 18014398509481984.0);
}

// The products of backward are 2.5 times forward's where head_dim_v = head_dim.
TEST(Report, CountsTheFlopsOfItsDirection) {
  Report report = example();
  report.direction = Direction::backward;
  EXPECT_EQ(flops_of(report), 2.5 * 2149580800.0);
  EXPECT_FALSE(json_of(report).contains("forward"));
  report.direction = Direction::both;
  report.forward_seconds = 0.5;
  report.backward_seconds = 1.5;
  const nlohmann::json json = json_of(report);
  EXPECT_EQ(json["direction"], "both");
  EXPECT_EQ(json["flops"], 3.5 * 2149580800.0);
  EXPECT_EQ(json["forward"]["share"], 0.25);
  EXPECT_EQ(json["backward"]["share"], 0.75);
  EXPECT_EQ(json["backward"]["flops"], 2.5 * 2149580800.0);
  EXPECT_DOUBLE_EQ(json["backward"]["fraction_of_peak"], 2.5 * 2149580800.0 / 1.5 / 2 / 2e9);
  EXPECT_NE(table_of(report).find("(75.0%)"), std::string::npos);
}

TEST(Report, WhatWasNotMeasuredIsNull) {
  Report report = example();
  report.check.reset();
  report.check_off = "--check-rows 0";
  report.comm_seconds.reset();
  report.seed.reset();
  for (RankFigures& rank : report.ranks) rank.fma_peak = 0;
  nlohmann::json json = json_of(report);
  for (const char* name :
       {"comm_seconds", "hidden_fraction", "seed", "fma_peak_tflops_per_rank", "fraction_of_peak"}) {
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  EXPECT_TRUE(json["check"]["passed"].is_null());
  EXPECT_EQ(json["check"]["off"], "--check-rows 0");
  EXPECT_NE(table_of(report).find("check    off: --check-rows 0"), std::string::npos);

  report = example();
  report.mode = Mode::comm_only;
  json = json_of(report);
  for (const char* name : {"tflops", "tflops_per_rank", "fraction_of_peak", "hidden_fraction"}) {
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  report.mode = Mode::overlap;
  report.comm_seconds = 0;  // one rank exchanges nothing
  EXPECT_TRUE(json_of(report)["hidden_fraction"].is_null());
}

TEST(Report, AFailedCheckIsWrittenAndThrown) {
  Report report = example();
  report.check->passed = false;
  report.check->out.worst.error = std::numeric_limits<double>::infinity();
  report.check->text = "out[batch 0, row 3, head 1, element 2] is nan, float64 reference 0.5";
  const nlohmann::json json = nlohmann::json::parse(json_of(report).dump());
  EXPECT_EQ(json["check"]["passed"], false);
  EXPECT_TRUE(json["check"]["max_abs_error"].is_null());
  EXPECT_NE(table_of(report).find("FAILED"), std::string::npos);
  try {
    require_right_numbers(report);
    FAIL();
  } catch (const SharedFailure& e) {
    EXPECT_EQ(e.failure().code, ExitCode::wrong_numbers);
    EXPECT_NE(e.failure().text.find("row 3, head 1, element 2"), std::string::npos);
  }
}

TEST(Units, AreReadable) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(12.4 * (1 << 30)), "12.4 GiB");
  EXPECT_EQ(seconds_text(1.5), "1.500 s");
  EXPECT_EQ(seconds_text(0.0567), "56.7 ms");
  EXPECT_EQ(seconds_text(8.9e-6), "8.90 us");
  EXPECT_EQ(rate_text(2.35e11), "235 G");
  EXPECT_EQ(number_text(0.1), "0.1");
}

class OutputFile : public testing::Test {
 protected:
  OutputFile() : folder_(testing::TempDir() + "ringattn_output_" + std::to_string(getpid())) {
    std::filesystem::create_directory(folder_);
  }
  ~OutputFile() override { std::filesystem::remove_all(folder_); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  std::string folder_;
};

TEST_F(OutputFile, HasItsNameWhenItIsCompleteAndNotBefore) {
  const std::string path = folder_ + "/r.json";
  {
    const Output output(path);
    EXPECT_EQ(files(), 0u);
  }
  EXPECT_EQ(files(), 0u);
  Output output(path);
  testing::internal::CaptureStdout();
  output.write("table\n", "{}\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "table\n");
  EXPECT_EQ(files(), 1u);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), "{}\n");
}

TEST_F(OutputFile, ThatCannotBeWrittenIsKnownBeforeTheWork) {
  for (const std::string& path : {folder_ + "/none/r.json", folder_}) {
    try {
      const Output output(path);
      FAIL() << path;
    } catch (const DataError& e) {
      EXPECT_NE(std::string(e.what()).find(path), std::string::npos);
    }
  }
}

TEST_F(OutputFile, DashSendsJsonToStdoutAndTheTableToStderr) {
  Output output("-");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  output.write("table\n", "{}\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "{}\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "table\n");
}

}  // namespace
}  // namespace ringattn::launch
