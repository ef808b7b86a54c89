#include <gtest/gtest.h>

#include "comm/self.h"
#include "launch/fault_hook.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

TEST(TestFaults, AreReadFromTheVariable) {
  const TestFaults faults = parse_test_faults(
      "output-off;sleep:rank=1,ms=200;delay:rank=2,hop=3,ms=40;die:hop=1,rank=0;kill:rank=3,hop=0;sleep:rank="
      "1,ms=5");
  EXPECT_EQ(faults.output, OutputFault::off);
  EXPECT_EQ(faults.sleep_of(1), std::chrono::milliseconds(205));
  EXPECT_EQ(faults.sleep_of(0), std::chrono::milliseconds(0));
  ASSERT_EQ(faults.transfers.size(), 2u);
  EXPECT_EQ(faults.transfers[0].rank, 2);
  EXPECT_EQ(faults.transfers[0].fault.kind, Fault::Kind::delay);
  EXPECT_EQ(faults.transfers[0].fault.hop, 3);
  EXPECT_EQ(faults.transfers[0].fault.delay, std::chrono::milliseconds(40));
  EXPECT_EQ(faults.transfers[1].fault.kind, Fault::Kind::die);
  ASSERT_EQ(faults.actions.size(), 1u);
  EXPECT_EQ(faults.actions[0].action, HopAction::kill);
  EXPECT_TRUE(parse_test_faults(nullptr).text.empty());
  EXPECT_TRUE(parse_test_faults("").text.empty());
}

TEST(TestFaults, SpoilAGradientAndReachItsTransfers) {
  const TestFaults faults =
      parse_test_faults("dk-off;kill:rank=3,hop=0,channel=1;fail:rank=0,hop=2,channel=1");
  EXPECT_EQ(faults.output, OutputFault::off);
  EXPECT_EQ(faults.spoilt, Spoilt::dk);
  EXPECT_EQ(faults.actions.at(0).channel, 1);
  EXPECT_EQ(faults.transfers.at(0).fault.channel, 1);
}

class RefusedFaults : public testing::TestWithParam<const char*> {};

TEST_P(RefusedFaults, NameTheVariable) {
  try {
    parse_test_faults(GetParam());
    FAIL() << "accepted";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("RINGATTN_TEST_FAULT"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, RefusedFaults,
                         testing::Values("output-nam", "output-nan;output-inf", "output-nan:rank=1", ";",
                                         "output-nan;", "sleep", "sleep:rank=1", "sleep:rank=1,ms=x",
                                         "sleep:rank=1,ms=-1", "sleep:rank=1,ms=1,hop=1", "kill:rank=1",
                                         "kill:rank=1,hop=0,hop=1", "die:rank=1,hop=1,ms=3",
                                         "delay:rank=1,hop=1", "kill:rank,hop=0", "dq-nam", "dq-nan;dk-nan",
                                         "dv-zero:rank=1", "kill:rank=0,hop=0,channel=2",
                                         "sleep:rank=0,ms=1,channel=1"));

TEST(TestFaults, ActOnTheirRankAndHopOnly) {
  const auto shift = [](const std::string& fault, int hop, int channel = 0) {
    const auto comm = with_faults(make_self_communicator(), parse_test_faults(fault.c_str()));
    std::byte from{1}, to{2};
    comm->shift(hop, std::span(&from, 1), std::span(&to, 1), {.channel = channel})
        ->wait(Clock::now() + std::chrono::seconds(5));
    return to == from;
  };
  EXPECT_TRUE(shift("throw:rank=0,hop=2", 1));
  EXPECT_TRUE(shift("throw:rank=1,hop=2", 2));
  EXPECT_THROW(shift("throw:rank=0,hop=2", 2), std::runtime_error);
  EXPECT_THROW(shift("oom:rank=0,hop=0", 0), OutOfMemory);
  EXPECT_TRUE(shift("throw:rank=0,hop=2", 2, 1));
  EXPECT_TRUE(shift("throw:rank=0,hop=2,channel=1", 2, 0));
  EXPECT_THROW(shift("throw:rank=0,hop=2,channel=1", 2, 1), std::runtime_error);
  EXPECT_THROW(shift("fail:rank=0,hop=0", 0), CommError);
}

}  // namespace
}  // namespace ringattn::launch
