// Which rank gets which GPU, and what then carries the blocks.
#include "launch/gpus.h"

#include <gtest/gtest.h>

#include "comm/nccl.h"
#include "launch/ring_link.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

RankGpu gpu(const std::string& host, int index) {
  return {.host = host,
          .uuid = "GPU-" + host + std::to_string(index),
          .pci = "0000:0" + std::to_string(index) + ":00.0",
          .name = "H200",
          .index = index};
}

CudaMachine machine(const std::vector<std::string>& unusable) {
  CudaMachine machine;
  for (const std::string& why : unusable)
    machine.devices.push_back({.index = static_cast<int>(machine.devices.size()), .unusable = why});
  return machine;
}

TEST(DeviceOfRank, IsItsNumberAmongThoseThatCanBeUsed) {
  const CudaMachine three = machine({"", "too old", "", ""});
  EXPECT_EQ(device_of_rank(three, 0).index, 0);
  EXPECT_EQ(device_of_rank(three, 1).index, 2);
  EXPECT_EQ(device_of_rank(three, 2).index, 3);
  EXPECT_EQ(device_of_rank(three, 3).index, 0);
  EXPECT_EQ(device_of_rank(three, 7).index, 2);
}

TEST(DeviceOfRank, WithoutAnyIsTheReason) {
  CudaMachine none;
  none.unavailable = "no driver";
  EXPECT_THROW(device_of_rank(none, 0), DeviceError);
}

// The same number means another GPU on another machine, and where each process is shown its own alone.
TEST(GpuPlacement, TellsGpusApartByWhatTheyAreAndNotByTheirNumbers) {
  EXPECT_FALSE((GpuPlacement{{gpu("a", 0), gpu("a", 1), gpu("b", 0)}}.first_shared()));
  RankGpu shown_alone = gpu("a", 1);
  shown_alone.index = 0;
  EXPECT_FALSE(same_gpu(gpu("a", 0), shown_alone));
  EXPECT_TRUE(same_gpu(gpu("a", 1), shown_alone));
  const GpuPlacement shared{{gpu("a", 0), gpu("b", 0), gpu("a", 0), gpu("a", 0)}};
  EXPECT_EQ(shared.first_shared(), std::pair(0, 2));
  EXPECT_EQ(shared.ranks_on_gpu(0), 3);
  EXPECT_EQ(shared.ranks_on_gpu(1), 1);
}

TEST(GpuPlacement, PartsOfADividedGpuAreOneGpu) {
  RankGpu first = gpu("a", 0), second = gpu("a", 0);
  second.uuid = "GPU-another-part";
  EXPECT_TRUE(same_gpu(first, second));
  second.host = "b";  // the same slot of another machine
  EXPECT_FALSE(same_gpu(first, second));
}

const GpuPlacement kApart{{gpu("a", 0), gpu("a", 1)}}, kShared{{gpu("a", 0), gpu("a", 0)}},
    kOne{{gpu("a", 0)}};

LinkChoice choice(CommunicatorKind kind, const GpuPlacement& gpus, double gbps = 0,
                  const std::string& fault = "") {
  Options options;
  options.communicator = kind;
  options.link_gbps = gbps;
  return choose_link(options, parse_test_faults(fault.c_str()), gpus, kind == CommunicatorKind::threads);
}

void expect_refused(CommunicatorKind kind, const GpuPlacement& gpus, const std::vector<std::string>& words,
                    double gbps = 0, const std::string& fault = "") {
  try {
    choice(kind, gpus, gbps, fault);
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& e) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what() << "\nshould say " << word;
  }
}

TEST(LinkChoice, IsWhatWasAskedFor) {
  EXPECT_EQ(choice(CommunicatorKind::mpi, kApart).kind, LinkKind::staged);
  EXPECT_EQ(choice(CommunicatorKind::mpi, kShared, 10).kind, LinkKind::staged);
  EXPECT_EQ(choice(CommunicatorKind::threads, kShared).kind, LinkKind::device_ranks);
  EXPECT_EQ(choice(CommunicatorKind::self, kOne).kind, LinkKind::host);
  EXPECT_EQ(choice(CommunicatorKind::mpi, kApart).why, "");
}

TEST(LinkChoice, OfOneRankIsNone) {
  EXPECT_EQ(choice(CommunicatorKind::automatic, kOne).kind, LinkKind::host);
}

TEST(LinkChoice, OfItselfIsNcclForAGpuEachAndStagedOtherwiseWithTheReason) {
  const LinkChoice shared = choice(CommunicatorKind::automatic, kShared);
  EXPECT_EQ(shared.kind, LinkKind::staged);
  if (!nccl_built()) {
    EXPECT_EQ(shared.why, "this build has no NCCL");
    EXPECT_EQ(choice(CommunicatorKind::automatic, kApart).kind, LinkKind::staged);
    return;
  }
  EXPECT_EQ(choice(CommunicatorKind::automatic, kApart).kind, LinkKind::nccl);
  EXPECT_EQ(shared.why, "ranks 0 and 1 compute on one GPU (H200, GPU-a0 of a), which NCCL refuses");
}

TEST(LinkChoice, LeavesALinkAndAFaultToTheHostThatImitatesThem) {
  const LinkChoice slow = choice(CommunicatorKind::automatic, kApart, 10);
  EXPECT_EQ(slow.kind, LinkKind::staged);
  EXPECT_EQ(slow.why, "--link-gbps needs the host");
  EXPECT_EQ(choice(CommunicatorKind::automatic, kApart, 0, "vanish:rank=0,hop=1").kind, LinkKind::staged);
  expect_refused(CommunicatorKind::threads, kApart, {"--link-gbps", "threads", "--communicator mpi"}, 10);
  expect_refused(CommunicatorKind::nccl, kApart, {"RINGATTN_TEST_FAULT 'kill:rank=1,hop=0'", "nccl"}, 0,
                 "kill:rank=1,hop=0");
}

TEST(LinkChoice, RefusesNcclForTwoRanksOnOneGpuWithTheWayOut) {
  if (!nccl_built()) {
    expect_refused(CommunicatorKind::nccl, kApart, {"--communicator is 'nccl'", "no NCCL"});
    return;
  }
  EXPECT_EQ(choice(CommunicatorKind::nccl, kApart).kind, LinkKind::nccl);
  expect_refused(CommunicatorKind::nccl, kShared,
                 {"--communicator is 'nccl'", "ranks 0 and 1", "GPU-a0", "--communicator mpi"});
}

}  // namespace
}  // namespace ringattn::launch
