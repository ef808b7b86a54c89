#include "tests/comm/route_checks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/last_words.h"
#include "src/error.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using Bytes = std::vector<std::byte>;

}  // namespace

void check_distances(Communicator& comm) {
  const int rank = comm.rank(), size = comm.size();
  int hop = 0;
  for (const int distance : {1, 2, -1, -3, 0, size, size + 1, -2 * size - 1}) {
    for (int channel = 0; channel < Route::kChannels; ++channel) {
      const Route route{.distance = distance, .channel = channel};
      const int sender = ((rank - distance) % size + size) % size;
      const Bytes sent = pattern(70'001, rank, hop);
      Bytes got(sent.size());
      comm.shift(hop, sent, got, route)->wait(soon());
      EXPECT_TRUE(got == pattern(70'001, sender, hop)) << "distance " << distance << " channel " << channel;
      ++hop;
    }
  }
}

void check_channels(Communicator& comm) {
  const int rank = comm.rank(), size = comm.size();
  const int previous = previous_rank(rank, size), home = ((rank + 2) % size + size) % size;
  const SentCount before = comm.sent();
  constexpr std::size_t kLarge = 9'000'003, kSmall = 501;
  for (const bool large_first : {true, false}) {
    for (const int other_hop : {4, 5}) {
      const std::size_t blocks = large_first ? kLarge : kSmall, gradients = large_first ? kSmall : kLarge;
      const Bytes a = pattern(blocks, rank, 4), b = pattern(gradients, rank, 100 + other_hop);
      Bytes got_a(blocks), got_b(gradients);
      auto first = comm.shift(4, a, got_a);
      auto second = comm.shift(other_hop, b, got_b, {.distance = -2, .channel = 1});
      // In turns, as the ring does while it computes: a rank that waits for one alone may hold up the other.
      for (bool done = false; !done;) {
        const bool first_done = first->test(), second_done = second->test();
        done = first_done && second_done;
      }
      second->wait(soon());
      first->wait(soon());
      EXPECT_TRUE(got_a == pattern(blocks, previous, 4));
      EXPECT_TRUE(got_b == pattern(gradients, home, 100 + other_hop));
    }
  }
  EXPECT_EQ(comm.sent().messages - before.messages, 8u);
  EXPECT_EQ(comm.sent().bytes - before.bytes, 4 * (kLarge + kSmall));

  // The same size and hop on both: only the content tells them apart.
  const Bytes a = pattern(4096, rank, 0), b = pattern(4096, rank, 1);
  Bytes got_a(4096), got_b(4096);
  auto second = comm.shift(7, b, got_b, {.channel = 1});
  auto first = comm.shift(7, a, got_a);
  first->wait(soon());
  second->wait(soon());
  EXPECT_TRUE(got_a == pattern(4096, previous, 0));
  EXPECT_TRUE(got_b == pattern(4096, previous, 1));
}

void check_arrivals(Communicator& comm) {
  const int previous = previous_rank(comm.rank(), comm.size());
  constexpr std::size_t kSize = 10'000'019;
  const Bytes sent = pattern(kSize, comm.rank(), 3), expected = pattern(kSize, previous, 3);
  Bytes got = poisoned(kSize);
  const auto shift = comm.shift(3, sent, got, {.channel = 1});
  std::size_t seen = 0;
  for (bool done = false; !done;) {
    done = shift->test();
    const std::size_t arrived = shift->arrived();
    ASSERT_GE(arrived, seen);
    ASSERT_LE(arrived, kSize);
    ASSERT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(seen),
                           got.begin() + static_cast<std::ptrdiff_t>(arrived),
                           expected.begin() + static_cast<std::ptrdiff_t>(seen)));
    seen = arrived;
  }
  EXPECT_EQ(seen, kSize);
  const auto empty = comm.shift(4, {}, {}, {.channel = 1});
  empty->wait(soon());
  EXPECT_EQ(empty->arrived(), 0u);
}

void check_refusals(Communicator& comm) {
  const Bytes sent = pattern(1000, comm.rank(), 0);
  Bytes got(1000);
  for (const int channel : {-1, Route::kChannels}) {
    try {
      (void)comm.shift(0, sent, got, {.channel = channel});
      ADD_FAILURE() << "channel " << channel << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("channel is " + std::to_string(channel)), std::string::npos);
    }
  }
  const auto running = comm.shift(0, sent, got, {.channel = 1});
  try {
    (void)comm.shift(1, sent, got, {.channel = 1});
    ADD_FAILURE() << "two shifts on one channel";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("hop 0 is still under way on channel 1"), std::string::npos)
        << error.what();
  }
  running->wait(soon());
  EXPECT_TRUE(got == pattern(1000, previous_rank(comm.rank(), comm.size()), 0));
}

}  // namespace ringattn::test
