#include "tests/comm/ring_checks.h"

#include <thread>
#include <utility>

#include "comm/last_words.h"
#include "tests/comm/pattern.h"

namespace ringattn::test {

void check_equal_sizes(Communicator& comm) {
  const int previous = previous_rank(comm.rank(), comm.size());
  int hop = 0;
  for (const std::size_t size : kSizes) {
    const auto mine = pattern(size, comm.rank(), hop);
    auto got = poisoned(size);
    comm.shift(hop, mine, got)->wait(soon());
    EXPECT_TRUE(got == pattern(size, previous, hop)) << size << " bytes at rank " << comm.rank();
    EXPECT_TRUE(mine == pattern(size, comm.rank(), hop)) << "the sender's block of " << size << " bytes";
    ++hop;
  }
}

void check_sizes_that_differ(Communicator& comm) {
  const auto size_of_rank = [](int rank, std::size_t turn) {
    return kSizes[(static_cast<std::size_t>(rank) + turn) % kSizes.size()];
  };
  const int previous = previous_rank(comm.rank(), comm.size());
  for (std::size_t turn = 0; turn < kSizes.size(); ++turn) {
    const int hop = static_cast<int>(turn);
    const auto mine = pattern(size_of_rank(comm.rank(), turn), comm.rank(), hop);
    // One byte more than arrives, to see that nothing is written behind the block.
    auto got = poisoned(size_of_rank(previous, turn) + 1);
    auto expected = pattern(got.size(), previous, hop);
    expected.back() = got.back();
    const auto shift = comm.shift(hop, mine, std::span(got).first(got.size() - 1));
    while (!shift->test()) std::this_thread::yield();
    shift->wait(soon());
    EXPECT_TRUE(got == expected) << got.size() - 1 << " bytes at rank " << comm.rank();
  }
}

void check_full_turn(Communicator& comm) {
  // Rank r's shard has 1000 r bytes, so that rank 0's is empty; a slot holds the largest.
  const auto shard = [](int rank) { return static_cast<std::size_t>(rank) * 1000; };
  auto slot = pattern(shard(comm.size()), comm.rank(), 0);
  auto other = poisoned(slot.size());
  int owner = comm.rank();
  for (int hop = 0; hop + 1 < comm.size(); ++hop) {
    const int coming = previous_rank(owner, comm.size());
    comm.shift(hop, std::span(slot).first(shard(owner)), std::span(other).first(shard(coming)))->wait(soon());
    std::swap(slot, other);
    owner = coming;
    const auto expected = pattern(shard(owner), owner, 0);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), slot.begin()))
        << "hop " << hop << " should bring rank " << owner << "'s block to rank " << comm.rank();
  }
  EXPECT_EQ(owner, next_rank(comm.rank(), comm.size()));
}

void check_many_shifts(Communicator& comm, int count) {
  const std::size_t size = 4099;  // a prime
  std::array<std::vector<std::byte>, 2> slots = {pattern(size, comm.rank(), 0), poisoned(size)};
  std::unique_ptr<Shift> shift;
  for (int hop = 0; hop < count; ++hop) {
    // Assigned over the finished one, as a loop would: the old shift must not end the new one.
    shift = comm.shift(hop, slots[0], slots[1]);
    for (int tile = 0; tile < hop % 3; ++tile) shift->test();
    shift->wait(soon());
    EXPECT_TRUE(shift->test());
    std::swap(slots[0], slots[1]);
  }
  const int owner = ((comm.rank() - count) % comm.size() + comm.size()) % comm.size();
  EXPECT_TRUE(slots[0] == pattern(size, owner, 0));
}

void check_all_gather(Communicator& comm) {
  const auto size_of_rank = [](int rank, int round) {
    return static_cast<std::size_t>((rank + round) % 3) * 1237;
  };
  for (int round = 0; round < 5; ++round) {
    const auto mine = pattern(size_of_rank(comm.rank(), round), comm.rank(), round);
    const auto all = comm.all_gather(mine, soon());
    ASSERT_EQ(all.size(), static_cast<std::size_t>(comm.size()));
    for (int rank = 0; rank < comm.size(); ++rank) {
      EXPECT_TRUE(all[static_cast<std::size_t>(rank)] == pattern(size_of_rank(rank, round), rank, round))
          << "rank " << rank << "'s blob of round " << round;
    }
  }
}

void check_sent_count(Communicator& comm) {
  const SentCount before = comm.sent();
  const std::size_t mine = comm.rank() == 0 ? 0 : 70'000;
  const std::size_t coming = previous_rank(comm.rank(), comm.size()) == 0 ? 0 : 70'000;
  const auto block = pattern(mine, comm.rank(), 0);
  auto got = poisoned(coming);
  for (int hop = 0; hop < 3; ++hop) comm.shift(hop, block, got)->wait(soon());
  comm.all_gather(block, soon());
  const SentCount after = comm.sent();
  EXPECT_EQ(after.bytes - before.bytes, 3 * mine);
  EXPECT_EQ(after.messages - before.messages, mine == 0 ? 0u : 3u);
}

void check_one_shift_at_a_time(Communicator& comm) {
  const auto block = pattern(5000, comm.rank(), 4);
  auto got = poisoned(5000), other = poisoned(5000);
  const auto shift = comm.shift(4, block, got);
  EXPECT_THROW((void)comm.shift(5, block, other), UsageError);
  shift->wait(soon());
  EXPECT_TRUE(got == pattern(5000, previous_rank(comm.rank(), comm.size()), 4));
}

std::string without_time(std::string text) {
  const std::string before = "timed out after ", unit = " s";
  const std::size_t at = text.find(before);
  if (at == std::string::npos) return text;
  const std::size_t begin = at + before.size(), end = text.find_first_not_of("0123456789.", begin);
  if (end == std::string::npos || text.compare(end, unit.size(), unit) != 0) return text;
  text.erase(begin, end - begin);
  text.insert(begin, 1, 'T');
  return text;
}

}  // namespace ringattn::test
