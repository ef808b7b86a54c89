// The command line of gpu-acceptance, its lines and its exit codes.
#include "bench/gpu/command.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "bench/gpu/lines.h"
#include "tests/bench_gpu/harness_ranks.h"
#include "tests/simt/config.h"

namespace ringattn::acceptance {
namespace {

struct Ran {
  int code;
  std::string out, err;
};
Ran run(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = run_command(arguments, test::on_harness_ranks, out, err);
  return {code, out.str(), err.str()};
}

TEST(BenchGpuCommand, WrongArgumentsAreNamed) {
  EXPECT_EQ(run({}).code, 2);
  EXPECT_NE(run({"kernels", "--extent", "huge"}).err.find("'huge'"), std::string::npos);
  EXPECT_EQ(run({"kernels", "--extent", "huge"}).code, 2);
  EXPECT_EQ(run({"kernels", "--extent"}).code, 2);
  EXPECT_NE(run({"kernels", "--extend", "tiny"}).err.find("'--extend'"), std::string::npos);
  EXPECT_EQ(run({"everything"}).code, 2);
  EXPECT_NE(run({"units", "--extent", "tiny"}).err.find("means nothing"), std::string::npos);
}

TEST(BenchGpuCommand, AChapterThatDoesNotExistFailsItsChecks) {
  const Ran ran = run({"kernels", "--extent", "tiny", "--chapters", "sm_17"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.out.find("sm_17"), std::string::npos) << ran.out;
}

TEST(BenchGpuCommand, InfoListsTheDevices) {
  const Ran ran = run({"info"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_NE(ran.out.find("\"capability\": "), std::string::npos) << ran.out;
}

TEST(BenchGpuCommand, WithoutADeviceNothingPasses) {
  const simt::Config before = simt::config();
  simt::config().devices = 0;
  const Ran info = run({"info"}), kernels = run({"kernels"});
  simt::config() = before;
  EXPECT_EQ(info.code, 0);
  EXPECT_NE(info.out.find("\"devices\": []"), std::string::npos) << info.out;
  EXPECT_EQ(kernels.code, 5);
  EXPECT_NE(kernels.err.find("no GPU"), std::string::npos) << kernels.err;
  EXPECT_EQ(kernels.out, "");
}

TEST(BenchGpuLines, AreJson) {
  std::ostringstream text;
  Lines lines(text);
  lines.write({.part = "units",
               .name = "a \"b\"\\\n",
               .status = Status::failed,
               .detail = "no",
               .facts = {{"kernel", "cuda/plain"}},
               .numbers = {{"ratio", 0.5}, {"worst", INFINITY}}});
  EXPECT_EQ(text.str(),
            "{\"part\": \"units\", \"name\": \"a \\\"b\\\"\\\\\\u000a\", \"status\": \"failed\", \"detail\": "
            "\"no\", "
            "\"kernel\": \"cuda/plain\", \"ratio\": 0.5, \"worst\": null}\n");
  EXPECT_EQ(lines.failed(), 1);
}

}  // namespace
}  // namespace ringattn::acceptance
