#include "comm/threads.h"

#include <thread>

#include "comm/last_words.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm/route_checks.h"

namespace ringattn::test {
namespace {

class ThreadRing : public testing::TestWithParam<int> {
 protected:
  void on_every_rank(const std::function<void(Communicator&)>& body) {
    run_thread_ranks(GetParam(), [&](const std::shared_ptr<Communicator>& comm) { body(*comm); });
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, ThreadRing, testing::Values(1, 2, 3, 4, 5, 8));

TEST_P(ThreadRing, KnowsItsRanks) {
  std::vector<int> seen(static_cast<std::size_t>(GetParam()), 0);
  on_every_rank([&](Communicator& comm) {
    EXPECT_EQ(comm.name(), "threads");
    EXPECT_EQ(comm.size(), GetParam());
    ++seen[static_cast<std::size_t>(comm.rank())];
  });
  EXPECT_EQ(seen, std::vector<int>(static_cast<std::size_t>(GetParam()), 1));
}

TEST_P(ThreadRing, BringsBlocksOfEverySize) { on_every_rank(check_equal_sizes); }
TEST_P(ThreadRing, BringsBlocksWhoseSizesDifferByRank) { on_every_rank(check_sizes_that_differ); }
TEST_P(ThreadRing, FullTurnBringsEveryBlockToEveryRank) { on_every_rank(check_full_turn); }
TEST_P(ThreadRing, ManyShiftsInARow) {
  on_every_rank([](Communicator& comm) { check_many_shifts(comm, 500); });
}
TEST_P(ThreadRing, GathersBlobsOfDifferentSizes) { on_every_rank(check_all_gather); }
TEST_P(ThreadRing, CountsBytesAndBlocks) { on_every_rank(check_sent_count); }
TEST_P(ThreadRing, OneShiftAtATime) { on_every_rank(check_one_shift_at_a_time); }
TEST_P(ThreadRing, RoutesOfEveryDistance) { on_every_rank(check_distances); }
TEST_P(ThreadRing, ChannelsRunSideBySideAndDoNotCross) { on_every_rank(check_channels); }
TEST_P(ThreadRing, ArrivedBytesMayBeReadBeforeTheRest) { on_every_rank(check_arrivals); }
TEST_P(ThreadRing, RefusesWrongAndBusyChannels) { on_every_rank(check_refusals); }

// The sender's block may be overwritten as soon as its wait() returns, however late the receiver looks.
TEST_P(ThreadRing, WaitReturnsOnlyWhenTheReceiverHasTheBytes) {
  on_every_rank([](Communicator& comm) {
    for (int hop = 0; hop < 20; ++hop) {
      auto block = pattern(70'000, comm.rank(), hop);
      auto got = poisoned(70'000);
      const auto shift = comm.shift(hop, block, got);
      if (comm.rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      shift->wait(soon());
      std::fill(block.begin(), block.end(), std::byte{0xff});
      EXPECT_TRUE(got == pattern(70'000, previous_rank(comm.rank(), comm.size()), hop));
    }
  });
}

// 3 MiB + 1 byte in pieces: polling alone moves the block, and a poll does not wait for the peer.
TEST_P(ThreadRing, TestAloneMakesProgress) {
  on_every_rank([](Communicator& comm) {
    const std::size_t size = kSizes.back();
    const auto block = pattern(size, comm.rank(), 0);
    auto got = poisoned(size);
    const auto shift = comm.shift(0, block, got);
    EXPECT_FALSE(shift->test());  // one piece of 1 MiB at most
    const Deadline limit = soon();
    while (!shift->test() && Clock::now() < limit) std::this_thread::yield();
    EXPECT_TRUE(shift->test());
    EXPECT_TRUE(got == pattern(size, previous_rank(comm.rank(), comm.size()), 0));
  });
}

TEST(ThreadRing, RefusesAGroupWithoutRanks) {
  EXPECT_THROW(make_thread_communicators(0), UsageError);
  EXPECT_THROW(run_thread_ranks(-1, [](const std::shared_ptr<Communicator>&) {}), UsageError);
}

}  // namespace
}  // namespace ringattn::test
