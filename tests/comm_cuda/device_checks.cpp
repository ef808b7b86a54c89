#include "tests/comm_cuda/device_checks.h"

#include <gtest/gtest.h>

#include <array>

#include "comm/last_words.h"
#include "src/error.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/stream_work.h"

namespace ringattn::test {
namespace {

void finish(const RankThread& me, DeviceCommunicator& comm, Findings& findings) {
  comm.settle(soon());
  cudaStreamSynchronize(me.stream);
  findings.report();
}

}  // namespace

void check_device_sizes(const RankThread& me, DeviceCommunicator& comm) {
  const int previous = previous_rank(me.rank, me.size);
  // Those of case A20, of which the largest only takes time here.
  for (const std::size_t size : {0u, 1u, 1000u, 4000u, 4096u, 5000u, 70'000u}) {
    const int hop = static_cast<int>(size % 89);
    const DeviceBlock mine(size), got(size + 1);
    Findings findings;
    write_pattern(me.stream, mine.bytes(), me.rank, hop);
    write_poison(me.stream, got.bytes());
    comm.shift(hop, mine.bytes(), got.first(size))->wait(soon());
    findings.expect_pattern(me.stream, got.first(size), previous, hop);
    findings.expect_all(me.stream, got.bytes().last(1), std::byte{0xfb});  // nothing behind the block
    write_poison(me.stream, mine.bytes());                                 // it may be overwritten
    finish(me, comm, findings);
  }
}

void check_device_turns(const RankThread& me, DeviceCommunicator& comm) {
  // Rank 0's shard is empty; a slot holds the largest.
  const auto shard = [](int rank) { return static_cast<std::size_t>(rank) * 1009; };
  const std::array<DeviceBlock, 2> slots = {DeviceBlock(shard(me.size)), DeviceBlock(shard(me.size))};
  Findings findings;
  for (int call = 0; call < 3; ++call) {
    write_pattern(me.stream, slots[0].first(shard(me.rank)), me.rank, call);
    for (int hop = 0; hop + 1 < me.size; ++hop) {
      const int owner = rank_at(me.rank, -hop, me.size), coming = rank_at(me.rank, -hop - 1, me.size);
      const auto now = slots[static_cast<std::size_t>(hop % 2)].first(shard(owner));
      const auto next = slots[static_cast<std::size_t>((hop + 1) % 2)].first(shard(coming));
      const auto shift = comm.shift(hop, now, next);
      for (int polls = 0; polls < (hop + me.rank) % 3; ++polls) shift->test();
      findings.expect_pattern(me.stream, now, owner, call);  // the hop's computation, beside the transfer
      shift->wait(soon());
      findings.expect_pattern(me.stream, next, coming, call);
    }
  }
  finish(me, comm, findings);
}

void check_device_distances(const RankThread& me, DeviceCommunicator& comm) {
  constexpr std::size_t kBytes = 4099;  // a prime
  const DeviceBlock mine(kBytes), got(kBytes);
  Findings findings;
  int hop = 0;
  for (const int distance : {1, 2, -1, -3, 0, me.size, me.size + 1, -2 * me.size - 1}) {
    for (int channel = 0; channel < Route::kChannels; ++channel, ++hop) {
      const Route route{.distance = distance, .channel = channel};
      write_pattern(me.stream, mine.bytes(), me.rank, hop);
      write_poison(me.stream, got.bytes());
      comm.shift(hop, mine.bytes(), got.bytes(), route)->wait(soon());
      findings.expect_pattern(me.stream, got.bytes(), sender_to(me.rank, route, me.size), hop);
    }
  }
  finish(me, comm, findings);
}

namespace {

// What backward keeps: block and sum of turn t in slot t mod 2, as large as the shard of the rank they belong
// to. The table of turns is in src/executor.cpp.
struct BackwardCall {
  const RankThread& me;
  DeviceCommunicator& comm;
  Findings& findings;
  const std::array<DeviceBlock, 2>&blocks, &sums;
  int last = 0, call = 0;  // hops after the own one; the call's number

  int owner(int turn) const { return turn == last + 1 ? me.rank : rank_at(me.rank, -turn, me.size); }
  // Rank 1 and every third one after it have nothing; the others differ.
  std::size_t rows(int turn) const {
    const auto rank = static_cast<std::size_t>(owner(turn));
    return rank % 3 == 1 ? 0 : 1009 * (rank + 1) + static_cast<std::size_t>(call);
  }
  std::span<std::byte> block(int turn) const {
    return blocks[static_cast<std::size_t>(turn % 2)].first(rows(turn));
  }
  std::span<std::byte> sum(int turn) const {
    return sums[static_cast<std::size_t>(turn % 2)].first(rows(turn));
  }

  void add_own_share(int turn) const {
    on_stream(me.stream, sum(turn), simt::Access::write, [share = me.rank + 1](std::span<std::byte> bytes) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(std::to_integer<int>(b) + share);
    });
  }

  void run_turn(int turn) const {
    std::unique_ptr<Shift> moving, summing;
    if (turn < last) moving = comm.shift(turn, block(turn), block(turn + 1));
    if (turn >= 2) {
      const int distance = turn == last + 1 ? me.size - last : 1;
      summing = comm.shift(turn - 1, sum(turn - 1), sum(turn), {.distance = distance, .channel = 1});
    }
    if (turn == 1) write_zero(me.stream, sum(turn));
    if (turn >= 1 && turn <= last) {
      findings.expect_pattern(me.stream, block(turn), owner(turn), call);
      // As a kernel does: it asks for the sums just before it adds to them.
      const Deadline deadline = soon();
      while (summing && summing->arrived() < sum(turn).size()) {
        summing->test();
        if (moving) moving->test();  // who waits for one alone may hold up the other
        ASSERT_LT(Clock::now(), deadline);
      }
      add_own_share(turn);
    }
    if (moving) moving->wait(soon());
    if (summing) summing->wait(soon());
  }
};

}  // namespace

void check_device_backward(const RankThread& me, DeviceCommunicator& comm) {
  const std::size_t largest = 1009 * static_cast<std::size_t>(me.size + 1) + 64;
  const std::array<DeviceBlock, 2> blocks = {DeviceBlock(largest), DeviceBlock(largest)};
  const std::array<DeviceBlock, 2> sums = {DeviceBlock(largest), DeviceBlock(largest)};
  Findings findings;
  int call = 0;
  for (int round = 0; round < 2; ++round) {
    for (int last = 1; last < me.size; ++last) {
      const BackwardCall ring{.me = me,
                              .comm = comm,
                              .findings = findings,
                              .blocks = blocks,
                              .sums = sums,
                              .last = last,
                              .call = call++};
      write_pattern(me.stream, ring.block(0), me.rank, ring.call);
      for (int turn = 0; turn <= last + 1; ++turn) ring.run_turn(turn);
      // Those that had the block: the `last` ranks after this one.
      int expected = 0;
      for (int i = 1; i <= last; ++i) expected += rank_at(me.rank, i, me.size) + 1;
      findings.expect_all(me.stream, ring.sum(last + 1), static_cast<std::byte>(expected));
    }
  }
  finish(me, comm, findings);
}

void check_device_sent(const RankThread& me, DeviceCommunicator& comm) {
  const SentCount before = comm.sent();
  const DeviceBlock mine(70'001), got(70'001);
  write_zero(me.stream, mine.bytes());
  comm.shift(0, mine.bytes(), got.bytes())->wait(soon());
  comm.shift(1, mine.first(3), got.first(3), {.channel = 1})->wait(soon());
  comm.shift(2, {}, {})->wait(soon());  // an empty block is no message
  comm.settle(soon());
  cudaStreamSynchronize(me.stream);
  EXPECT_EQ(comm.sent().bytes - before.bytes, 70'004u);
  EXPECT_EQ(comm.sent().messages - before.messages, 2u);
}

void check_device_refusals(const RankThread& me, DeviceCommunicator& comm) {
  const auto usage_error_of = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no UsageError";
  };
  const DeviceBlock mine(1000), got(1000);
  Findings findings;
  write_pattern(me.stream, mine.bytes(), me.rank, 0);
  for (const int channel : {-1, Route::kChannels}) {
    const std::string text =
        usage_error_of([&] { (void)comm.shift(0, mine.bytes(), got.bytes(), {.channel = channel}); });
    EXPECT_TRUE(contains(text, "channel is " + std::to_string(channel))) << text;
  }
  const auto running = comm.shift(0, mine.bytes(), got.bytes(), {.channel = 1});
  const std::string text =
      usage_error_of([&] { (void)comm.shift(1, mine.bytes(), got.bytes(), {.channel = 1}); });
  EXPECT_TRUE(contains(text, "hop 0 is still under way on channel 1")) << text;
  running->wait(soon());
  findings.expect_pattern(me.stream, got.bytes(), previous_rank(me.rank, me.size), 0);
  finish(me, comm, findings);
}

}  // namespace ringattn::test
