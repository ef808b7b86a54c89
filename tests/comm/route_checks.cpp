#include "tests/comm/route_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

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
  constexpr std::size_t kLarge = 5'000'003, kSmall = 501;  // three chunks of MPI, and one
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

namespace {

// What backward keeps: block and sum of turn t in slot t mod 2, as large as the shard of the rank they
// belong to. Hop number and content differ from call to call only as they do in the library.
struct BackwardCall {
  Communicator& comm;
  int last = 0, call = 0;  // hops after the own one; the call's number
  std::array<Bytes, 2> blocks{}, sums{};

  int owner(int turn) const {
    return turn == last + 1 ? comm.rank() : rank_at(comm.rank(), -turn, comm.size());
  }
  // Rank 1 and every third one after it have nothing; the others differ.
  std::size_t rows(int turn) const {
    const auto rank = static_cast<std::size_t>(owner(turn));
    return rank % 3 == 1 ? 0 : 10'007 * (rank + 1) + static_cast<std::size_t>(call);
  }
  Bytes& block(int turn) { return blocks[static_cast<std::size_t>(turn % 2)]; }
  Bytes& sum(int turn) { return sums[static_cast<std::size_t>(turn % 2)]; }

  void add_own_share(int turn) {
    const auto share = static_cast<std::uint8_t>(comm.rank() + 1);
    for (std::byte& b : sum(turn)) b = static_cast<std::byte>(std::to_integer<unsigned>(b) + share);
  }

  void run_turn(int turn) {
    std::unique_ptr<Shift> moving, summing;
    if (turn < last) {
      block(turn + 1) = poisoned(rows(turn + 1));
      moving = comm.shift(turn, block(turn), block(turn + 1));
    }
    if (turn >= 2) {
      sum(turn) = poisoned(rows(turn));
      const int distance = turn == last + 1 ? comm.size() - last : 1;
      summing = comm.shift(turn - 1, sum(turn - 1), sum(turn), {.distance = distance, .channel = 1});
    }
    if (turn == 1) sum(turn) = Bytes(rows(turn));
    for (int polls = 0; polls < (comm.rank() + call) % 4; ++polls) {  // some ranks compute for longer
      if (moving) moving->test();
      if (summing) summing->test();
    }
    if (moving) moving->wait(soon());
    if (summing) summing->wait(soon());
    if (turn >= 1 && turn <= last) {
      EXPECT_TRUE(block(turn) == pattern(rows(turn), owner(turn), call)) << "turn " << turn << " of " << last;
      add_own_share(turn);
    }
  }
};

}  // namespace

void check_backward_ring(Communicator& comm) {
  int call = 0;
  for (int round = 0; round < 4; ++round) {
    for (int last = 1; last < comm.size(); ++last) {
      BackwardCall ring{.comm = comm, .last = last, .call = call++};
      ring.block(0) = pattern(ring.rows(0), comm.rank(), ring.call);
      for (int turn = 0; turn <= last + 1; ++turn) ring.run_turn(turn);
      // Those that had the block: the `last` ranks after this one.
      unsigned expected = 0;
      for (int i = 1; i <= last; ++i)
        expected += static_cast<unsigned>(rank_at(comm.rank(), i, comm.size()) + 1);
      const Bytes all(ring.rows(0), static_cast<std::byte>(expected));
      EXPECT_TRUE(ring.sum(last + 1) == all) << "rank " << comm.rank() << ", " << last << " hops";
    }
  }
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
