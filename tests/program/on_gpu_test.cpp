// The whole program on simulated GPUs: launch/ and what lies below it, built against the harness of
// tests/simt.
#include <gtest/gtest.h>

#include <cmath>

#include "launch/bench.h"
#include "launch/files/tensor_file.h"
#include "launch/program.h"
#include "launch/steps.h"
#include "tests/files/scratch.h"
#include "tests/program/process.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

using Variables = std::map<std::string, std::string>;

Ended on_gpus(const std::string& arguments, const Variables& more = {}) {
  Start how{.arguments = words(arguments)};
  how.environment.insert(more.begin(), more.end());
  return start(how);
}

nlohmann::json report_of(const Ended& ended) {
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto lines = json_lines(ended.out);
  EXPECT_EQ(lines.size(), 1u) << ended.out;
  return lines.empty() ? nlohmann::json() : lines[0];
}

// Small, uneven, and no length divides by anything: 53 tokens on up to 5 ranks, a tile in some of them.
const std::string kSmall =
    "bench --seqlen 53 --num-heads 4 --num-heads-kv 2 --head-dim 16 --mask causal --rope half --iterations 2 "
    "--warmup 1 --check-rows 5 --json ";

TEST(OnGpu, BenchComputesThereChecksAndSaysWhatItUsed) {
  const auto json = report_of(on_gpus(
      kSmall + "- --backend cuda --isa plain --communicator threads --ranks 3", {{"SIMT_DEVICES", "2"}}));
  EXPECT_EQ(json["backend"], "cuda/plain");
  EXPECT_EQ(json["isa"], "plain");
  EXPECT_EQ(json["communicator"], "device(threads)");
  EXPECT_EQ(json["clock"], "events on the device");
  EXPECT_EQ(json["check"]["passed"], true);
  EXPECT_EQ(json["hops"], 3);
  EXPECT_GT(json["bytes_sent_per_rank"], 0);
  EXPECT_GT(json["seconds"]["min"], 0);
  EXPECT_GT(json["compute_seconds"], 0);
  EXPECT_GE(json["wait_seconds"], 0);
  EXPECT_GT(json["comm_seconds"], 0);
  const auto& device = json["device"];
  EXPECT_EQ(device["name"], "simt sm_90");
  EXPECT_EQ(device["compute_capability"], "9.0");
  EXPECT_DOUBLE_EQ(device["clock_ghz"], 1.98);
  EXPECT_EQ(device["gpus_in_use"], 2);
  // The third rank is on the first GPU again.
  EXPECT_EQ(json["per_rank"][1]["device"]["index"], 1);
  EXPECT_EQ(json["per_rank"][2]["device"]["uuid"], json["per_rank"][0]["device"]["uuid"]);
}

// The peak is that of the harness' H200 for fp32 without tensor cores: 132 x 1.98 GHz x 256.
TEST(OnGpu, BenchComparesWithThePeakOfTheDataSheet) {
  const auto json = report_of(on_gpus(kSmall + "- --backend cuda"));
  EXPECT_EQ(json["communicator"], "self");
  EXPECT_EQ(json["peak_instruction"], "FMA");
  EXPECT_EQ(json["peak_source"], "data sheet: 132 multiprocessors x 1.98 GHz x 256 FLOP a clock");
  EXPECT_NEAR(json["fma_peak_tflops_per_rank"], 132 * 1.98e9 * 256 * 1e-12, 1e-6);
  EXPECT_GT(json["fraction_of_peak"], 0);
  EXPECT_FALSE(json["roofline"].is_null());
}

TEST(OnGpu, BenchOfGradientsInSixteenBitsPassesItsCheck) {
  for (const char* direction : {"backward", "both"}) {
    const auto json = report_of(
        on_gpus(kSmall + "- --dtype bf16 --communicator threads --ranks 2 " + "--direction " + direction));
    EXPECT_TRUE(json["backend"].get<std::string>().starts_with("cuda/")) << "auto, with a GPU there";
    EXPECT_EQ(json["check"]["passed"], true);
    EXPECT_EQ(json["check"]["gradients"]["dk"]["passed"], true);
    EXPECT_EQ(json["peak_instruction"], "tensor core bf16");
  }
}

TEST(OnGpu, ShardsMayBeEmptyAndEveryModeEnds) {
  for (const char* mode : {"overlap", "blocking", "compute-only", "comm-only"}) {
    const auto json =
        report_of(on_gpus("bench --seqlen 3 --num-heads 1 --head-dim 8 --iterations 1 --warmup 0 "
                          "--communicator threads --ranks 5 --backend cuda --json - --mode " +
                          std::string(mode)));
    EXPECT_EQ(json["mode"], mode);
  }
}

// With a GPU there that is what a run would use, and what plan reckons with: 80 % of 132 x 1.98 GHz x 4096.
TEST(OnGpu, PlanIsOfItsKernelAndItsPeak) {
  const std::string ring = "plan --ranks 2 --seqlen 53 --dtype bf16 --json -";
  for (const char* backend : {"", " --backend cuda"}) {
    const Ended ended = on_gpus(ring + backend);
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto json = json_lines(ended.out).at(0);
    EXPECT_EQ(json["backend"], "cuda");
    EXPECT_NEAR(json["estimate"]["assumed_tflops_per_rank"], 0.8 * 132 * 1.98e9 * 4096 * 1e-12, 1e-6);
    EXPECT_EQ(json["estimate"]["peak_source"], "simt sm_90 by its data sheet");
  }
  const auto json = json_lines(on_gpus(ring + " --backend cpu").out).at(0);
  EXPECT_EQ(json["backend"], "cpu");
  EXPECT_NE(json["estimate"]["peak_instruction"], "tensor core bf16");
}

// What is planned is what is sent and held.
TEST(OnGpu, PlanKeepsWhatItPromises) {
  const std::string problem = "--seqlen 53 --num-heads 4 --num-heads-kv 2 --head-dim 16 --json -";
  const auto plan = json_lines(on_gpus("plan --ranks 3 " + problem + " --backend cuda").out).at(0);
  const auto json =
      report_of(on_gpus("bench --communicator threads --ranks 3 --iterations 1 --backend cuda " + problem));
  EXPECT_EQ(json["bytes_sent_per_rank"], plan["bytes_sent_per_rank"]["max"]);
  EXPECT_EQ(json["workspace_bytes_per_rank"], plan["workspace_bytes_per_rank"]["max"]);
}

TEST(OnGpu, AnOutputThatIsSpoiltThereIsFound) {
  const Ended ended = on_gpus(kSmall + "- --backend cuda", {{"RINGATTN_TEST_FAULT", "output-nan"}});
  EXPECT_EQ(ended.code, 1) << ended.err;
}

// 5 GB of tensors on a GPU of 4 GiB.
TEST(OnGpu, MoreThanItsMemoryIsRefusedBeforeAnythingIsMade) {
  const Ended ended = on_gpus("bench --seqlen 20000000 --num-heads 1 --head-dim 16 --backend cuda");
  EXPECT_EQ(ended.code, 6) << ended.err;
  EXPECT_NE(ended.err.find("available (free on GPU 0, simt sm_90)"), std::string::npos) << ended.err;
}

TEST(OnGpu, AVersionThatTheGpuDoesNotRunIsRefusedByName) {
  const auto refused = [](const std::string& arguments) {
    return on_gpus("bench --seqlen 53 --isa sm_90a " + arguments, {{"SIMT_CAPABILITY", "80"}});
  };
  // The options are right, for another machine: an error of the device.
  const Ended ended = refused("--dtype bf16");
  EXPECT_EQ(ended.code, 5) << ended.err;
  EXPECT_NE(ended.err.find("'sm_90a' does not run on the current device, whose compute capability is 8.0"),
            std::string::npos)
      << ended.err;
  // No machine runs these: an error of whoever gave them.
  const Ended never = refused("--dtype f32");
  EXPECT_EQ(never.code, 2) << never.err;
  EXPECT_NE(never.err.find("'sm_90a' cannot do this"), std::string::npos) << never.err;
}

// The same tensors on both backends, whose outputs differ by rounding alone: fp32, 1e-5 of values below 1.
TEST(OnGpu, RunWritesWhatTheCpuWrites) {
  const Scratch scratch;
  const auto write = [&](const std::string& name, index_t rows, index_t heads) {
    std::vector<float> values;
    for (index_t i = 0; i < rows * heads * 16; ++i)
      values.push_back(std::sin(0.7f * static_cast<float>(i % 101)));
    PendingFile file = PendingFile::create(scratch.path(name), {1, rows, heads, 16}, DType::f32);
    const Segment all{.begin = 0, .count = rows};
    file.write(std::span(&all, 1), 1, std::as_bytes(std::span(values)));
    file.commit();
  };
  write("q.npy", 41, 4);
  write("dout.npy", 41, 4);
  write("k.npy", 47, 2);
  write("v.npy", 47, 2);
  const auto run = [&](const std::string& prefix, const std::string& options) {
    std::string line = "run --mask causal --communicator threads --ranks 3 " + options;
    for (const char* name : {"q", "k", "v", "dout"})
      line += " --" + std::string(name) + " " + scratch.path(std::string(name) + ".npy");
    for (const char* name : {"out", "dq", "dk", "dv"})
      line += " --" + std::string(name) + " " + scratch.path(prefix + name + ".npy");
    const Ended ended = on_gpus(line);
    ASSERT_EQ(ended.code, 0) << ended.err;
  };
  run("cpu_", "--backend cpu");
  run("gpu_", "--backend cuda");
  for (const char* name : {"out", "dq", "dk", "dv"}) {
    const auto values = [&](const std::string& prefix) {
      const TensorFile file = TensorFile::open(scratch.path(prefix + name + ".npy"), std::nullopt);
      std::vector<float> all(static_cast<std::size_t>(file.shape()[1] * file.shape()[2] * 16));
      const Segment rows{.begin = 0, .count = file.shape()[1]};
      file.read(std::span(&rows, 1), std::as_writable_bytes(std::span(all)));
      return all;
    };
    const std::vector<float> cpu = values("cpu_"), gpu = values("gpu_");
    ASSERT_EQ(cpu.size(), gpu.size());
    for (std::size_t i = 0; i < cpu.size(); ++i) ASSERT_NEAR(cpu[i], gpu[i], 1e-5) << name << " " << i;
  }
}

TEST(InfoOnGpu, ListsTheDevices) {
  const Ended ended = on_gpus("info --json -", {{"SIMT_DEVICES", "2"}});
  const auto json = report_of(ended);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][1]["uuid"], "GPU-f0000000000000000000000000000001");
  EXPECT_TRUE(json["devices"][1]["unusable"].is_null());
  EXPECT_TRUE(json["cuda_unavailable"].is_null());
  EXPECT_EQ(json["cuda_driver"], "13.0");
  EXPECT_EQ(json["nccl_version"], "2.28.9");
  EXPECT_EQ(json["cuda_kernels"].back(), "plain");
  EXPECT_NE(ended.err.find("simt sm_90, compute capability 9.0, 132 multiprocessors at up to 1.98 GHz"),
            std::string::npos)
      << ended.err;
}

TEST(InfoOnGpu, SaysWhyNoneCanBeUsed) {
  const Ended old = on_gpus("info --json -", {{"SIMT_CAPABILITY", "75"}, {"SIMT_DEVICES", "1"}});
  EXPECT_EQ(report_of(old)["devices"][0]["unusable"], "compute capability 7.5, 8.0 or later is needed");
  EXPECT_NE(old.err.find("not used: compute capability 7.5"), std::string::npos) << old.err;
  const Ended none = on_gpus("info --json -", {{"SIMT_DRIVER", "0"}});
  const std::string why = "no CUDA driver: CUDA driver version is insufficient for CUDA runtime version";
  EXPECT_EQ(report_of(none)["cuda_unavailable"], why);
  EXPECT_TRUE(report_of(none)["cuda_driver"].is_null());
  EXPECT_NE(none.err.find("none can be used: " + why), std::string::npos) << none.err;
  const Ended asked = on_gpus("bench --seqlen 53 --backend cuda", {{"SIMT_DRIVER", "0"}});
  EXPECT_EQ(asked.code, 5);
  EXPECT_NE(asked.err.find(why), std::string::npos) << asked.err;
}

// NCCL's stand-in connects threads of one process alone, so its ranks are threads here.
class NcclOnGpu : public ::testing::Test {
 protected:
  ~NcclOnGpu() override { simt::config() = before_; }
  launch::ExitCode bench(int ranks, const std::string& arguments) {
    launch::Options options = launch::parse_options(words(kSmall + path() + " " + arguments));
    options.threads = 1;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const launch::ExitCode code = launch::run_thread_ranks(
        ranks, [&](const std::shared_ptr<Communicator>& comm, const launch::Seat& seat) {
          launch::bench(comm, options, seat);
        });
    testing::internal::GetCapturedStdout();
    said_ = testing::internal::GetCapturedStderr();
    return code;
  }
  std::string path() const { return scratch_.path("report.json"); }
  std::string said_;

 private:
  Scratch scratch_;
  simt::Config before_ = simt::config();
};

TEST_F(NcclOnGpu, TurnsTheRingForwardAndBackward) {
  ASSERT_EQ(bench(3, "--communicator nccl --direction both"), launch::ExitCode::ok) << said_;
  const auto json = json_lines(contents(path())).at(0);
  EXPECT_EQ(json["communicator"], "nccl");
  EXPECT_EQ(json["check"]["passed"], true);
  EXPECT_EQ(json["device"]["gpus_in_use"], 3);
}

TEST_F(NcclOnGpu, RefusesTwoRanksOnOneGpu) {
  simt::config().devices = 2;
  EXPECT_EQ(bench(3, "--communicator nccl"), launch::ExitCode::usage);
  EXPECT_NE(said_.find("ranks 0 and 2 compute on one GPU (simt sm_90, "), std::string::npos) << said_;
  EXPECT_NE(said_.find("--communicator mpi"), std::string::npos) << said_;
}

}  // namespace
}  // namespace ringattn::test
