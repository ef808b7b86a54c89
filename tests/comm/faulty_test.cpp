#include "comm/faulty.h"

#include <bit>
#include <thread>

#include "comm/last_words.h"
#include "comm/self.h"
#include "comm/threads.h"
#include "comm/throttled.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;
using Kind = Fault::Kind;

Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

// Two ranks, rank 0 of which has the faults.
struct Pair {
  std::unique_ptr<Communicator> faulty, sound;
  explicit Pair(std::vector<Fault> faults) {
    auto comms = make_thread_communicators(2);
    faulty = make_faulty(std::move(comms[0]), std::move(faults));
    sound = std::move(comms[1]);
  }
};

// Both ends are driven by one thread, so neither may be waited for alone.
void finish(Shift& a, Shift& b) {
  const Deadline limit = in(5000);
  for (bool done = false; !done && Clock::now() < limit;) {
    const bool a_done = a.test(), b_done = b.test();
    done = a_done && b_done;
  }
  ASSERT_TRUE(a.test() && b.test());
}

int bits_that_differ(std::span<const std::byte> a, std::span<const std::byte> b) {
  int bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) bits += std::popcount(std::to_integer<unsigned>(a[i] ^ b[i]));
  return bits;
}

TEST(Faulty, AFaultOfOneChannelLeavesTheOtherAlone) {
  Pair pair({{.kind = Kind::corrupt, .hop = 2, .channel = 1}});
  const auto block = pattern(1000, 0, 0), back = pattern(1000, 1, 0);
  auto got = poisoned(1000), mine = poisoned(1000);
  for (const int channel : {0, 1}) {
    const Route route{.distance = -1, .channel = channel};
    const auto bad = pair.faulty->shift(2, block, mine, route);
    const auto good = pair.sound->shift(2, back, got, route);
    finish(*bad, *good);
    EXPECT_EQ(bits_that_differ(got, block), channel);
    EXPECT_EQ(bad->arrived(), 1000u);
  }
}

TEST(Faulty, ALateShiftKeepsItsRouteAndHasNothingBefore) {
  Pair pair({{.kind = Kind::delay, .hop = 0, .channel = 1, .delay = milliseconds(30)}});
  const auto block = pattern(1000, 0, 0), back = pattern(1000, 1, 0);
  auto got = poisoned(1000), mine = poisoned(1000);
  const Route route{.distance = 3, .channel = 1};
  const auto late = pair.faulty->shift(0, block, mine, route);
  EXPECT_FALSE(late->test());
  EXPECT_EQ(late->arrived(), 0u);
  const auto other = pair.sound->shift(0, back, got, route);
  finish(*late, *other);
  EXPECT_TRUE(got == block && mine == back);
}

TEST(Faulty, NamesWhatIsBelow) {
  EXPECT_EQ(make_faulty(make_throttled(make_self_communicator(), {}), {})->name(), "faulty(throttled(self))");
}

TEST(Faulty, OtherHopsAreLeftAlone) {
  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& inner) {
    const auto comm =
        make_faulty(inner, {{.kind = Kind::fail, .hop = 1000}, {.kind = Kind::vanish, .hop = 999}});
    check_equal_sizes(*comm);
    check_sizes_that_differ(*comm);
    check_full_turn(*comm);
    check_many_shifts(*comm, 100);
    check_all_gather(*comm);
    check_sent_count(*comm);
  });
}

TEST(Faulty, TruncateSendsOneByteLess) {
  for (const std::size_t size : {std::size_t{2}, std::size_t{5000}}) {
    Pair pair({{.kind = Kind::truncate, .hop = 2}});
    const auto block = pattern(size, 0, 2);
    auto got = poisoned(size);
    const auto sending = pair.faulty->shift(2, block, {});
    const auto receiving = pair.sound->shift(2, {}, got);
    EXPECT_EQ(comm_error_of([&] { receiving->wait(soon()); }), size_text(1, 2, 0, size - 1, size));
    EXPECT_TRUE(got == poisoned(size));
  }
}

TEST(Faulty, CorruptFlipsOneBitAndLeavesTheCallersBlockAlone) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4096}, kSizes.back()}) {
    Pair pair({{.kind = Kind::corrupt, .hop = 1}});
    for (int hop = 0; hop < 3; ++hop) {
      const auto block = pattern(size, 0, hop);
      auto got = poisoned(size);
      {
        const auto sending = pair.faulty->shift(hop, block, {});
        pair.sound->shift(hop, {}, got)->wait(soon());
        sending->wait(soon());
      }
      EXPECT_EQ(bits_that_differ(got, block), hop == 1 ? 1 : 0) << size << " bytes, hop " << hop;
      EXPECT_TRUE(block == pattern(size, 0, hop));
    }
  }
}

TEST(Faulty, CorruptAndTruncateTogether) {
  for (const bool corrupt_first : {false, true}) {
    const Fault corrupt{.kind = Kind::corrupt, .hop = 0}, truncate{.kind = Kind::truncate, .hop = 0};
    Pair pair(corrupt_first ? std::vector{corrupt, truncate} : std::vector{truncate, corrupt});
    const auto block = pattern(100, 0, 0);
    auto got = poisoned(99);
    const auto sending = pair.faulty->shift(0, block, {});
    pair.sound->shift(0, {}, got)->wait(soon());
    EXPECT_EQ(bits_that_differ(got, block), 1);
    sending->wait(soon());
  }
}

TEST(Faulty, FailThrowsAtTheHop) {
  const auto comm = make_faulty(make_self_communicator(), {{.kind = Kind::fail, .hop = 1}});
  const auto block = pattern(10, 0, 0);
  auto got = poisoned(10);
  comm->shift(0, block, got)->wait(soon());
  EXPECT_EQ(comm_error_of([&] { (void)comm->shift(1, block, got); }), "rank 0, hop 1: failed on purpose");
}

// The failing rank of a group ends the others.
TEST(Faulty, FailReachesTheGroup) {
  try {
    run_thread_ranks(4, [](const std::shared_ptr<Communicator>& inner) {
      const auto comm =
          make_faulty(inner, inner->rank() == 2 ? std::vector{Fault{.kind = Kind::fail, .hop = 3}}
                                                : std::vector<Fault>{});
      check_many_shifts(*comm, 10);
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const CommError& error) {
    EXPECT_STREQ(error.what(), "rank 2, hop 3: failed on purpose");
  }
}

// Both sides end at their deadlines, and each names what it waits for.
TEST(Faulty, VanishIsSilence) {
  Pair pair({{.kind = Kind::vanish, .hop = 0}});
  const auto block = pattern(70'000, 0, 0);
  auto at_faulty = poisoned(70'000), at_sound = poisoned(70'000);
  const Deadline start = Clock::now();
  const auto vanished = pair.faulty->shift(0, block, at_faulty);
  const auto waiting = pair.sound->shift(0, block, at_sound);
  EXPECT_FALSE(vanished->test());
  EXPECT_FALSE(waiting->test());
  EXPECT_EQ(
      without_time(comm_error_of([&] { waiting->wait(in(50)); })),
      "rank 1, hop 0: timed out after T s waiting for 70000 bytes from rank 0 (0 arrived) and for rank 0 "
      "to take 70000 bytes (0 taken)");
  EXPECT_EQ(
      without_time(comm_error_of([&] { vanished->wait(in(50)); })),
      "rank 0, hop 0: timed out after T s waiting for 70000 bytes from rank 1 (0 arrived) and for rank 1 "
      "to take 70000 bytes (0 taken)");
  EXPECT_GE(Clock::now() - start, milliseconds(100));
  EXPECT_TRUE(at_faulty == poisoned(70'000) && at_sound == poisoned(70'000));
}

TEST(Faulty, DelayPostponesWithoutBlocking) {
  Pair pair({{.kind = Kind::delay, .hop = 0, .delay = milliseconds(60)}});
  const auto block = pattern(5000, 0, 0);
  auto got = poisoned(5000);
  const Deadline start = Clock::now();
  const auto sending = pair.faulty->shift(0, block, {});
  const auto receiving = pair.sound->shift(0, {}, got);
  int polls = 0;
  while (!receiving->test()) {
    sending->test();
    ++polls;
    std::this_thread::yield();
  }
  EXPECT_GE(Clock::now() - start, milliseconds(60));
  EXPECT_GT(polls, 1);  // no poll slept through the delay
  sending->wait(soon());
  EXPECT_TRUE(got == block);
}

TEST(Faulty, DelayedBlockArrives) {
  run_thread_ranks(3, [](const std::shared_ptr<Communicator>& inner) {
    const auto comm =
        make_faulty(inner, inner->rank() == 1
                               ? std::vector{Fault{.kind = Kind::delay, .hop = 0, .delay = milliseconds(60)}}
                               : std::vector<Fault>{});
    const Deadline start = Clock::now();
    check_equal_sizes(*comm);
    if (comm->rank() == 1) {
      EXPECT_GE(Clock::now() - start, milliseconds(60));
    }
  });
}

TEST(Faulty, DelayKeepsTheDeadline) {
  Pair pair({{.kind = Kind::delay, .hop = 0, .delay = milliseconds(60'000)}});
  const auto block = pattern(5000, 0, 0);
  const Deadline start = Clock::now();
  const std::string text =
      comm_error_of([&] { pair.faulty->shift(0, block, {})->wait(start + milliseconds(30)); });
  EXPECT_TRUE(contains(text, "rank 0, hop 0") && contains(text, "for rank 1 to take 5000 bytes (0 taken)"))
      << text;
  EXPECT_LT(Clock::now() - start, milliseconds(1030));
}

TEST(FaultyDeathTest, DieEndsTheProcessAsIfKilled) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto comm = make_faulty(make_self_communicator(), {{.kind = Kind::die, .hop = 1}});
  const auto block = pattern(10, 0, 0);
  auto got = poisoned(10);
  comm->shift(0, block, got)->wait(soon());
  EXPECT_EXIT((void)comm->shift(1, block, got), testing::ExitedWithCode(137), "");
}

TEST(Faulty, RefusesFaultsThatCannotBe) {
  EXPECT_THROW(make_faulty(make_self_communicator(), {{.hop = -1}}), UsageError);
  EXPECT_THROW(make_faulty(make_self_communicator(), {{.kind = Kind::delay, .delay = milliseconds(-5)}}),
               UsageError);
}

}  // namespace
}  // namespace ringattn::test
