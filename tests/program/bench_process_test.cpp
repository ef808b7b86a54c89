// ringattn bench as a process: every layout, type and mode checks itself; failures have their exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "kernels/cpu/cpu.h"
#include "tests/program/process.h"

namespace ringattn::test {
namespace {

const std::string kSmall =
    " --seqlen 67 --num-heads 6 --num-heads-kv 2 --head-dim 20 --iterations 1 --warmup 0";

nlohmann::json bench(const std::string& options, const std::string& size = kSmall) {
  const Ended ended = ringattn(words("bench --json - " + options + size));
  EXPECT_EQ(ended.code, 0) << options << ": " << ended.err;
  const auto lines = json_lines(ended.out);
  EXPECT_EQ(lines.size(), 1u);
  return lines.at(0);
}

class BenchOfTypes : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(BenchOfTypes, ChecksItsNumbersForEveryMaskAndNumberOfRanks) {
  const auto [dtype, layout] = GetParam();
  const std::string both = "--dtype " + std::string(dtype) + " --layout " + layout;
  for (const char* rest : {" --communicator self --mask causal --rope half",
                           " --communicator threads --ranks 3 --mask causal --rope interleaved --rope-dim 10",
                           " --communicator threads --ranks 5 --window 9,2 --batch 2 --head-dim-v 7",
                           " --communicator threads --ranks 2 --cu-seqlens 0,13,13,50 --mask causal"}) {
    const auto json = bench(both + rest);
    EXPECT_EQ(json["check"]["passed"], true) << both << rest;
    EXPECT_EQ(json["check"]["rows"], 16);
    EXPECT_EQ(json["dtype"], dtype);
    EXPECT_EQ(json["layout"], layout);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BenchOfTypes,
                         testing::Combine(testing::Values("f32", "bf16", "f16"),
                                          testing::Values("contiguous", "zigzag", "striped")),
                         [](const auto& values) {
                           return std::string(std::get<0>(values.param)) + "_" + std::get<1>(values.param);
                         });

TEST(Bench, MoreRanksThanRowsLeaveSomeEmpty) {
  const auto json = bench("--communicator threads --ranks 5 --mask causal",
                          " --seqlen 3 --num-heads 1 --head-dim 1 --iterations 1");
  EXPECT_EQ(json["check"]["passed"], true);
  EXPECT_EQ(json["check"]["rows"], 3);
}

TEST(Bench, ModesReportWhatTheyMeasure) {
  const std::string ring = " --communicator threads --ranks 3 --mask causal";
  const auto overlap = bench("--mode overlap" + ring), blocking = bench("--mode blocking" + ring);
  for (const auto& json : {overlap, blocking}) {
    EXPECT_EQ(json["check"]["passed"], true);
    EXPECT_GT(json["comm_seconds"], 0);
    EXPECT_GT(json["bytes_sent_per_rank"], 0);
    EXPECT_EQ(json["messages_sent_per_rank"], 2);
    EXPECT_GT(json["fma_peak_tflops_per_rank"], 0);
  }
  const auto compute = bench("--mode compute-only" + ring);
  EXPECT_EQ(compute["bytes_sent_per_rank"], 0);
  EXPECT_TRUE(compute["comm_seconds"].is_null());
  EXPECT_TRUE(compute["check"]["passed"].is_null());
  EXPECT_FALSE(compute["check"]["off"].get<std::string>().empty());
  const auto comm = bench("--mode comm-only" + ring);
  EXPECT_EQ(comm["bytes_sent_per_rank"], overlap["bytes_sent_per_rank"]);
  EXPECT_TRUE(comm["tflops"].is_null());
}

// Twice the rate, where the machine has the instruction: a fraction of the other one's peak would flatter.
TEST(Bench, Bf16RefersToTheInstructionThatMultipliesIt) {
  const std::string f32 = bench("--communicator self --dtype f32")["peak_instruction"];
  EXPECT_EQ(f32, "FMA");
  const auto best = bench("--communicator self --dtype bf16");
  EXPECT_EQ(best["peak_instruction"], cpu_product(DType::bf16));
  const auto last = bench("--communicator self --dtype bf16 --isa " + cpu_isas().back());
  EXPECT_EQ(last["peak_instruction"], "FMA");
}

// A link of 50 ms latency and three ranks: two transfers of at least 50 ms each.
TEST(Bench, AThrottledLinkIsSeenInTheFigures) {
  const auto json = bench("--communicator threads --ranks 3 --link-latency-us 50000");
  EXPECT_GE(json["comm_seconds"], 0.1);
  EXPECT_GE(json["seconds"]["median"], 0.1);
  EXPECT_EQ(json["link_latency_us"], 50000);
  EXPECT_EQ(json["communicator"], "threads");
}

TEST(Bench, TheSeedAndNotTheRanksDecidesTheNumbers) {
  // The largest error of the check is as good as a digest of inputs and output of one rank.
  const auto error = [](const std::string& options) {
    return bench(options + " --communicator self")["check"]["naive_error"].get<double>();
  };
  EXPECT_EQ(error("--seed 1"), error("--seed 1 --layout striped"));
  EXPECT_NE(error("--seed 1"), error("--seed 2"));
}

// Case A33: a rank that starts 200 ms late is seen in the time of the whole.
TEST(Bench, TheSlowestRankIsTheTime) {
  const Ended ended = ringattn_with_fault(
      "sleep:rank=1,ms=200",
      words("bench --json - --communicator threads --ranks 4 --mode compute-only" + kSmall));
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto json = json_lines(ended.out).at(0);
  EXPECT_GE(json["seconds"]["min"], 0.2);
  EXPECT_GE(json["seconds_over_ranks"]["max"], 0.2);
  EXPECT_EQ(json["test_fault"], "sleep:rank=1,ms=200");
  EXPECT_NE(ended.err.find("RINGATTN_TEST_FAULT is on"), std::string::npos);
}

// Case A28.
TEST(Bench, WrongNumbersAreExitOneWithIndexAndValues) {
  for (const char* fault : {"output-nan", "output-inf", "output-off", "output-zero"}) {
    const Ended ended =
        ringattn_with_fault(fault, words("bench --json - --communicator threads --ranks 3" + kSmall));
    EXPECT_EQ(ended.code, 1) << fault;
    EXPECT_NE(ended.err.find("wrong numbers: out[batch 0, row "), std::string::npos) << ended.err;
    EXPECT_NE(ended.err.find("float64 reference "), std::string::npos) << ended.err;
    EXPECT_EQ(json_lines(ended.out).at(0)["check"]["passed"], false) << fault;
  }
}

// Every gradient on every number of ranks.
TEST_P(BenchOfTypes, ChecksItsGradients) {
  const auto [dtype, layout] = GetParam();
  const std::string all = "--dtype " + std::string(dtype) + " --layout " + layout;
  for (const char* rest :
       {" --direction backward --mask causal --rope half",
        " --direction both --communicator threads --ranks 3 --mask causal --rope interleaved --rope-dim 10",
        " --direction both --communicator threads --ranks 5 --window 9,2 --batch 2 --head-dim-v 7",
        " --direction backward --communicator threads --ranks 2 --cu-seqlens 0,13,13,50 --mask causal"}) {
    const auto json = bench(all + rest);
    EXPECT_EQ(json["check"]["passed"], true) << all << rest;
    const auto& gradients = json["check"]["gradients"];
    EXPECT_EQ(gradients["keys"], 16);
    for (const char* name : {"dq", "dk", "dv"}) {
      EXPECT_EQ(gradients[name]["passed"], true) << name;
      EXPECT_GT(gradients[name]["rms_error"], 0) << name;
      EXPECT_LE(gradients[name]["rms_error"], gradients[name]["max_abs_error"]) << name;
    }
  }
}

// Rows and keys of which little is left: one token has dq = dk = 0, the difference of equal numbers.
TEST(Bench, GradientsOfATokenOrTwoPass) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const char* length : {"1", "2", "3"}) {
      const auto json = bench(
          "--direction both --communicator threads --ranks 4 --mask causal --dtype " + std::string(dtype),
          std::string(" --num-heads 3 --head-dim 5 --iterations 1 --seqlen ") + length);
      EXPECT_EQ(json["check"]["passed"], true) << dtype << ", " << length;
    }
  }
}

// P - 1 messages forward, 2(P - 1) backward; shares add up to the whole.
TEST(Bench, DirectionsReportWhatTheySendAndHold) {
  const std::string ring = " --communicator threads --ranks 3 --mask causal --direction ";
  const auto forward = bench(ring + "forward"), backward = bench(ring + "backward"),
             both = bench(ring + "both");
  EXPECT_EQ(forward["messages_sent_per_rank"], 2);
  EXPECT_EQ(backward["messages_sent_per_rank"], 4);
  EXPECT_EQ(both["messages_sent_per_rank"], 6);
  EXPECT_EQ(both["flops"].get<double>(), forward["flops"].get<double>() + backward["flops"].get<double>());
  EXPECT_GT(backward["workspace_bytes_per_rank"], forward["workspace_bytes_per_rank"]);
  EXPECT_TRUE(forward["check"]["gradients"].is_null());
  EXPECT_NEAR(both["forward"]["share"].get<double>() + both["backward"]["share"].get<double>(), 1, 1e-12);
  const auto compute = bench("--mode compute-only" + ring + "both"),
             comm = bench("--mode comm-only" + ring + "both");
  EXPECT_EQ(compute["bytes_sent_per_rank"], 0);
  EXPECT_EQ(comm["bytes_sent_per_rank"], both["bytes_sent_per_rank"]);
}

// Case A28, of a gradient.
TEST(Bench, SpoiltGradientsAreExitOneWithIndexAndValues) {
  for (const std::string tensor : {"dq", "dk", "dv"}) {
    for (const char* how : {"-nan", "-inf", "-off", "-zero"}) {
      const Ended ended = ringattn_with_fault(
          tensor + how,
          words("bench --direction both --mask causal --json - --communicator threads --ranks 3" + kSmall));
      EXPECT_EQ(ended.code, 1) << tensor << how;
      EXPECT_NE(ended.err.find("wrong numbers: " + tensor + "[batch 0, row "), std::string::npos)
          << ended.err;
    }
  }
  const Ended none = ringattn_with_fault("dq-nan", words("bench" + kSmall));
  EXPECT_EQ(none.code, 2) << "a fault that does nothing is refused";
  EXPECT_NE(none.err.find("'dq-nan'"), std::string::npos) << none.err;
}

TEST(Bench, FailuresOfARankHaveTheirExitCodes) {
  const std::string ring = "bench --communicator threads --ranks 3" + kSmall;
  const std::vector<std::tuple<const char*, int, const char*>> faults{
      {"fail:rank=1,hop=0", 4, "rank 1"},    {"truncate:rank=0,hop=1", 4, "rank 1"},
      {"throw:rank=2,hop=0", 70, "rank 2"},  {"oom:rank=1,hop=1", 6, "rank 1"},
      {"die:rank=1,hop=0", 137, ""},         {"kill:rank=1,hop=0", 137, ""},
      {"nonsense", 2, "RINGATTN_TEST_FAULT"}};
  for (const auto& [fault, code, text] : faults) {
    const Ended ended = ringattn_with_fault(fault, words(ring));
    EXPECT_EQ(ended.code, code) << fault << ": " << ended.err;
    EXPECT_NE(ended.err.find(text), std::string::npos) << fault << ": " << ended.err;
    EXPECT_EQ(ended.out, "") << fault;
  }
}

TEST(Bench, ARankThatFallsSilentIsExitFourAtTheDeadline) {
  const Ended ended = ringattn_with_fault(
      "vanish:rank=1,hop=0", words("bench --communicator threads --ranks 3 --deadline 2" + kSmall));
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_NE(ended.err.find("timed out after 2."), std::string::npos) << ended.err;
  EXPECT_EQ(ended.out, "");
}

TEST(Bench, MemoryThatIsNotThereIsExitSixBeforeItIsTouched) {
  const Ended huge = ringattn(words("bench --seqlen 1000000000 --window 1,0"));
  EXPECT_EQ(huge.code, 6) << huge.err;
  EXPECT_NE(huge.err.find(" per rank, "), std::string::npos) << huge.err;
  const Ended limited =
      start({.arguments = words("bench --seqlen 100000 --window 1,0"), .address_space = 600u << 20});
  EXPECT_EQ(limited.code, 6) << limited.err;
  EXPECT_NE(limited.err.find("ulimit -v"), std::string::npos) << limited.err;
}

// Case A2.
TEST(Bench, MoreThreadsThanCpusIsSaid) {
  const Ended ended = ringattn(words("bench --json - --threads 300" + kSmall));
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find("< threads 300"), std::string::npos) << ended.err;
  EXPECT_EQ(json_lines(ended.out).at(0)["oversubscribed"], true);
}

TEST(Bench, TheProgressLineIsErased) {
  const Ended on = ringattn(words("bench --progress on" + kSmall));
  EXPECT_NE(on.err.find("timed iteration 1 of 1"), std::string::npos) << on.err;
  EXPECT_TRUE(on.err.ends_with("\r\033[K")) << on.err;
  EXPECT_EQ(ringattn(words("bench" + kSmall)).err, "");  // no terminal, nothing to say
}

TEST(Bench, EveryInstructionSetPassesItsCheck) {
  const auto isas = json_lines(ringattn(words("info --json -")).out).at(0)["isas"];
  for (const std::string isa : isas) {
    const auto json = bench("--mask causal --isa " + isa);
    EXPECT_EQ(json["isa"], isa);
    EXPECT_EQ(json["check"]["passed"], true);
  }
}

}  // namespace
}  // namespace ringattn::test
