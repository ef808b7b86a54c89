// What happens on one channel when the other fails, is given up or has other ranks at its ends.
#include <gtest/gtest.h>

#include <algorithm>

#include "comm/last_words.h"
#include "comm/threads.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

constexpr std::size_t kLarge = 3u << 20;  // three test()s of the threads

TEST(Routes, PeersAreCountedFromTheRankInBothDirections) {
  struct Case {
    int rank, distance, size, receiver, sender;
  };
  constexpr int kMost = 2147483647;
  for (const Case& c : {Case{1, 2, 5, 3, 4}, Case{1, -2, 5, 4, 3}, Case{0, 13, 5, 3, 2}, Case{4, 5, 5, 4, 4},
                        Case{0, 7, 1, 0, 0}, Case{2, kMost, 3, 0, 1},  // 2^31-1 mod 3 is 1
                        Case{2, -kMost - 1, 3, 0, 1}}) {               // and -2^31 mod 3 is 1, too
    const Route route{.distance = c.distance};
    EXPECT_EQ(receiver_of(c.rank, route, c.size), c.receiver) << c.rank << " + " << c.distance;
    EXPECT_EQ(sender_to(c.rank, route, c.size), c.sender) << c.rank << " - " << c.distance;
  }
}

TEST(Routes, DeadlineNamesThePeersOfTheRoute) {
  auto comms = make_thread_communicators(5);
  const auto block = pattern(70, 1, 0);
  auto got = poisoned(90);
  const auto shift = comms[1]->shift(4, block, got, {.distance = -2, .channel = 1});
  EXPECT_EQ(
      without_time(comm_error_of([&] { shift->wait(in(20)); })),
      "rank 1, hop 4: timed out after T s waiting for 90 bytes from rank 3 (0 arrived) and for rank 4 to "
      "take 70 bytes (0 taken)");
}

// Ranks are not in step: rank 2 may ask rank 0 for its next block while rank 1 has yet to take the one
// before.
TEST(Routes, ASenderStillBusyWithAnotherRankIsWaitedFor) {
  auto comms = make_thread_communicators(3);
  const auto one = pattern(kLarge, 0, 1), two = pattern(500, 0, 2);
  auto got_one = poisoned(kLarge), got_two = poisoned(500);
  const auto early = comms[2]->shift(2, {}, got_two, {.distance = 2});
  const auto sending = comms[0]->shift(1, one, {});
  EXPECT_FALSE(early->test());
  comms[1]->shift(1, {}, got_one)->wait(soon());
  EXPECT_FALSE(early->test());
  EXPECT_EQ(early->arrived(), 0u);
  EXPECT_TRUE(sending->test());
  const auto next = comms[0]->shift(2, two, {}, {.distance = 2});
  early->wait(soon());
  EXPECT_TRUE(next->test());
  EXPECT_TRUE(got_one == one && got_two == two);
}

// Rank 0 sends to rank 2 what rank 1 expects: nobody takes it, and both name whom they wait for.
TEST(Routes, RoutesThatDisagreeEndAtTheDeadline) {
  auto comms = make_thread_communicators(3);
  const auto block = pattern(100, 0, 0);
  auto got = poisoned(100);
  const auto sending = comms[0]->shift(0, block, {}, {.distance = 2});
  const auto receiving = comms[1]->shift(0, {}, got, {.distance = 1});
  EXPECT_TRUE(contains(comm_error_of([&] { receiving->wait(in(20)); }), "100 bytes from rank 0 (0 arrived)"));
  EXPECT_TRUE(contains(comm_error_of([&] { sending->wait(in(20)); }), "rank 2 to take 100 bytes (0 taken)"));
  EXPECT_TRUE(got == poisoned(100));
}

// A channel mixed up is no block for the other one, even of the same hop and size.
TEST(Routes, ABlockOfTheOtherChannelIsNotTaken) {
  auto comms = make_thread_communicators(2);
  const auto block = pattern(100, 0, 0);
  auto got = poisoned(100);
  const auto sending = comms[0]->shift(0, block, {}, {.channel = 1});
  const auto receiving = comms[1]->shift(0, {}, got);
  EXPECT_TRUE(contains(comm_error_of([&] { receiving->wait(in(20)); }), "100 bytes from rank 0 (0 arrived)"));
  EXPECT_TRUE(got == poisoned(100));
}

// A wrong size on one channel is final for both, at both ends, and no byte of it is written.
TEST(Routes, AFailureOfOneChannelFailsTheOther) {
  auto comms = make_thread_communicators(2);
  const auto large = pattern(kLarge, 0, 0), wrong = pattern(101, 0, 1);
  auto got_large = poisoned(kLarge), got_wrong = poisoned(100);
  const auto sending = comms[0]->shift(0, large, {});
  const auto receiving = comms[1]->shift(0, {}, got_large);
  EXPECT_FALSE(receiving->test());
  const auto bad = comms[0]->shift(9, wrong, {}, {.channel = 1});
  const auto expecting = comms[1]->shift(9, {}, got_wrong, {.channel = 1});
  const std::string why = "rank 1, hop 9: rank 0 sends 101 bytes, 100 are expected";
  EXPECT_EQ(comm_error_of([&] { expecting->test(); }), why);
  EXPECT_EQ(comm_error_of([&] { receiving->wait(soon()); }), why);
  const std::string refused = "rank 0, hop 9: refused by its receiver: " + why;
  EXPECT_EQ(comm_error_of([&] { bad->test(); }), refused);
  EXPECT_EQ(comm_error_of([&] { sending->test(); }), refused);
  EXPECT_TRUE(got_wrong == poisoned(100));
}

// Either end gives up the half of a block while the other channel runs. What was lent is not read afterwards
// (it is freed here, so that a sanitizer sees a read), what has arrived stays, and the other channel ends.
TEST(Routes, AHalfDoneShiftIsGivenUpBesideAnother) {
  for (const int gives_up : {0, 1}) {
    auto comms = make_thread_communicators(2);
    const auto kept = pattern(kLarge, 0, 0);
    auto got_kept = poisoned(kLarge), got = poisoned(kLarge);
    const auto sending = comms[0]->shift(0, kept, {});
    const auto receiving = comms[1]->shift(0, {}, got_kept);
    EXPECT_FALSE(receiving->test());
    const std::size_t before = receiving->arrived();
    EXPECT_EQ(before, std::size_t{1} << 20);
    auto lent = std::make_unique<Bytes>(pattern(kLarge, 0, 1));
    auto out = comms[0]->shift(5, *lent, {}, {.channel = 1});
    auto taking = comms[1]->shift(5, {}, got, {.channel = 1});
    EXPECT_FALSE(taking->test());
    (gives_up == 0 ? out : taking).reset();
    if (gives_up == 0) lent.reset();
    const std::string text = comm_error_of([&] { (gives_up == 0 ? sending : receiving)->test(); });
    EXPECT_TRUE(contains(text, "hop 5: the shift was given up")) << text;
    // The peer's other channel still moves, since nobody has taken its block away; this one stands still.
    if (gives_up == 0) {
      receiving->wait(soon());
      EXPECT_TRUE(got_kept == kept);
      EXPECT_TRUE(contains(comm_error_of([&] { taking->wait(in(20)); }), "from rank 0 (1048576 arrived)"));
      EXPECT_TRUE(std::equal(got.begin() + (1 << 20), got.end(), poisoned(kLarge).begin() + (1 << 20)));
    } else {
      EXPECT_TRUE(
          contains(comm_error_of([&] { out->wait(in(20)); }), "to take 3145728 bytes (1048576 taken)"));
    }
  }
}

TEST(Routes, AbortReachesBothChannels) {
  auto comms = make_thread_communicators(2);
  const auto block = pattern(100, 0, 0);
  const auto one = comms[0]->shift(0, block, {}), two = comms[0]->shift(3, block, {}, {.channel = 1});
  comms[1]->abort(4, "rank 1: no more");
  EXPECT_EQ(comm_error_of([&] { one->test(); }), "rank 1: no more");
  EXPECT_EQ(comm_error_of([&] { two->wait(soon()); }), "rank 1: no more");
}

}  // namespace
}  // namespace ringattn::test
