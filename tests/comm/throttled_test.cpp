#include "comm/throttled.h"

#include <cmath>
#include <limits>
#include <thread>

#include "comm/last_words.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm/route_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

// 0.08 Gbit/s are 10,000 bytes a millisecond.
constexpr double kTenMegabytesPerSecond = 0.08;

TEST(Throttled, NamesTheLinkAndWhatIsBelow) {
  const auto comm = make_throttled(make_self_communicator(), {});
  EXPECT_EQ(comm->name(), "throttled(self)");
}

TEST(Throttled, BringsTheSameBytes) {
  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& inner) {
    const auto comm = make_throttled(inner, {.gigabits_per_second = 100, .latency_us = 20});
    check_equal_sizes(*comm);
    check_sizes_that_differ(*comm);
    check_full_turn(*comm);
    check_all_gather(*comm);
    check_sent_count(*comm);
    check_distances(*comm);
    check_channels(*comm);
    check_arrivals(*comm);
  });
}

// Two shifts of 400,000 bytes at 10 MB/s share the link: 40 ms and 80 ms, the second one bringing nothing
// before the first is through.
TEST(Throttled, ShiftsSideBySideFollowEachOther) {
  const auto comm = make_throttled(make_self_communicator(), {.gigabits_per_second = kTenMegabytesPerSecond});
  const auto block = pattern(400'000, 0, 0);
  auto one = poisoned(400'000), two = poisoned(400'000);
  const Deadline start = Clock::now();
  const auto first = comm->shift(0, block, one);
  const auto second = comm->shift(0, block, two, {.channel = 1});
  while (!first->test()) {
    second->test();
    const std::size_t arrived = second->arrived();
    const auto passed = Clock::now() - start;
    if (passed < milliseconds(40)) {
      EXPECT_EQ(arrived, 0u);
    }
    std::this_thread::yield();
  }
  second->wait(soon());
  EXPECT_GE(Clock::now() - start, milliseconds(80));
}

// What may be read is what the link has carried: 10,000 bytes a millisecond, after 10 ms of latency.
TEST(Throttled, BytesArriveInProportionToTime) {
  const auto comm = make_throttled(make_self_communicator(),
                                   {.gigabits_per_second = kTenMegabytesPerSecond, .latency_us = 10'000});
  const auto block = pattern(400'000, 0, 0);
  auto got = poisoned(400'000);
  const Deadline start = Clock::now();
  const auto shift = comm->shift(0, block, got);
  bool some = false;
  while (!shift->test()) {
    const std::size_t arrived = shift->arrived();
    const double most = std::chrono::duration<double, std::milli>(Clock::now() - start).count() - 10;
    EXPECT_LE(static_cast<double>(arrived), std::max(0.0, most) * 10'000 + 1);
    some = some || (arrived > 0 && arrived < block.size());
  }
  EXPECT_TRUE(some);
  EXPECT_EQ(shift->arrived(), block.size());
}

// 400,000 bytes at 10 MB/s: 40 ms, and 10 ms of latency. Not before, whether asked or waited for.
TEST(Throttled, ABlockTakesLatencyAndBytesOverBandwidth) {
  const auto comm = make_throttled(make_self_communicator(),
                                   {.gigabits_per_second = kTenMegabytesPerSecond, .latency_us = 10'000});
  const auto block = pattern(400'000, 0, 0);
  auto got = poisoned(400'000);
  Deadline start = Clock::now();
  comm->shift(0, block, got)->wait(soon());
  EXPECT_GE(Clock::now() - start, milliseconds(50));
  EXPECT_LT(Clock::now() - start, milliseconds(300));  // loose: other processes share the machine

  start = Clock::now();
  const auto shift = comm->shift(1, block, got);
  while (!shift->test()) std::this_thread::yield();
  EXPECT_GE(Clock::now() - start, milliseconds(50));
}

// One way 10,000 bytes, the other 400,000: both ranks take the time of the larger one.
TEST(Throttled, TheLargerDirectionCounts) {
  run_thread_ranks(2, [](const std::shared_ptr<Communicator>& inner) {
    const auto comm = make_throttled(inner, {.gigabits_per_second = kTenMegabytesPerSecond});
    const std::size_t out = comm->rank() == 0 ? 10'000 : 400'000, in = comm->rank() == 0 ? 400'000 : 10'000;
    const auto block = pattern(out, comm->rank(), 0);
    auto got = poisoned(in);
    const Deadline start = Clock::now();
    comm->shift(0, block, got)->wait(soon());
    EXPECT_GE(Clock::now() - start, milliseconds(40));
    EXPECT_TRUE(got == pattern(in, 1 - comm->rank(), 0));
  });
}

// Time spent computing counts: this is what makes overlap visible.
TEST(Throttled, TheLinkWorksWhileTheRankComputes) {
  const auto comm = make_throttled(make_self_communicator(), {.latency_us = 60'000});
  const auto block = pattern(1000, 0, 0);
  auto got = poisoned(1000);
  const auto shift = comm->shift(0, block, got);
  EXPECT_FALSE(shift->test());
  std::this_thread::sleep_for(milliseconds(61));
  EXPECT_TRUE(shift->test());
  shift->wait(Clock::now());  // nothing left to wait for
}

// test() moves the bytes below while the link still holds them back.
TEST(Throttled, TestMovesTheBytesBelow) {
  run_thread_ranks(2, [](const std::shared_ptr<Communicator>& inner) {
    const auto comm = make_throttled(inner, {.latency_us = 10'000'000});
    const auto block = pattern(70'000, comm->rank(), 0);
    auto got = poisoned(70'000);
    const auto shift = comm->shift(0, block, got);
    const auto expected = pattern(70'000, 1 - comm->rank(), 0);
    const Deadline limit = soon();
    while (got != expected && Clock::now() < limit) {
      EXPECT_FALSE(shift->test());
      std::this_thread::yield();
    }
    EXPECT_TRUE(got == expected);
    comm->all_gather({}, soon());  // both have seen their bytes before either gives up
    const std::string text = comm_error_of([&] { shift->wait(Clock::now() + milliseconds(20)); });
    EXPECT_TRUE(contains(text, place(comm->rank(), 0)) && contains(text, "70000 bytes on a throttled link"))
        << text;
  });
}

TEST(Throttled, AnEmptyShiftTakesNoTime) {
  const auto comm = make_throttled(make_self_communicator(), {.latency_us = 10'000'000});
  EXPECT_TRUE(comm->shift(0, {}, {})->test());
}

TEST(Throttled, DeadlinesBelowAreKept) {
  auto comms = make_thread_communicators(2);
  const auto comm = make_throttled(std::move(comms[0]), {.latency_us = 10'000'000});
  const auto block = pattern(10, 0, 0);
  const Deadline start = Clock::now();
  const std::string text = comm_error_of([&] { comm->shift(0, block, {})->wait(start + milliseconds(20)); });
  EXPECT_TRUE(contains(text, "for rank 1 to take 10 bytes (0 taken)")) << text;
  EXPECT_LT(Clock::now() - start, milliseconds(1020));
}

TEST(Throttled, RefusesLinksThatCannotBe) {
  for (const double wrong : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THROW(make_throttled(make_self_communicator(), {.gigabits_per_second = wrong}), UsageError);
    EXPECT_THROW(make_throttled(make_self_communicator(), {.latency_us = wrong}), UsageError);
  }
  try {
    make_throttled(make_self_communicator(), {.latency_us = -2.5});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_TRUE(contains(error.what(), "latency_us is -2.5")) << error.what();
  }
}

}  // namespace
}  // namespace ringattn::test
