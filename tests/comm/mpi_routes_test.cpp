// Routes over MPI: tags of their own for the channels, and what one channel hears of the other's failure.
// Each test has a communicator of its own and ends with all ranks together.
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <set>

#include "comm/last_words.h"
#include "comm/mpi.h"
#include "comm/mpi_endpoint.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

class MpiRoutes : public testing::Test {
 protected:
  void SetUp() override {
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  }
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  int rank_ = 0, size_ = 0;
};

// 32,767 is the largest tag the standard promises, Open MPI has 2^31-1; 7 and 8 leave two hops a channel.
TEST_F(MpiRoutes, TagsOfTheChannelsNeverMeetWhereverTheyWrap) {
  MpiEndpoint end(MPI_COMM_WORLD, {});
  for (const int largest : {7, 8, 32'767, INT_MAX}) {
    end.largest_tag = largest;
    std::set<int> control{kRollCallTag, kBlobTag}, first, second;
    for (int channel = 0; channel < Route::kChannels; ++channel)
      control.insert(MpiEndpoint::header_tag(channel));
    EXPECT_EQ(control.size(), 4u);
    for (const int start : {0, largest / 2 - 40, largest / 4 * 3, INT_MAX - 40}) {
      for (int hop = std::max(0, start); hop < std::max(0, start) + 40; ++hop) {
        first.insert(end.data_tag(hop, 0));
        second.insert(end.data_tag(hop, 1));
        // A rank may be a hop ahead of its neighbour.
        EXPECT_NE(end.data_tag(hop, 0), end.data_tag(hop + 1, 0))
            << "hop " << hop << " of tags to " << largest;
      }
    }
    for (const int tag : first) EXPECT_EQ(second.count(tag) + control.count(tag), 0u) << tag;
    for (const int tag : second) EXPECT_EQ(control.count(tag), 0u) << tag;
    EXPECT_GE(std::min(*first.begin(), *second.begin()), 0);
    EXPECT_LE(std::max(*first.rbegin(), *second.rbegin()), largest);
  }
}

// The last hop there is on one channel, the one that shares its place among the tags on the other.
TEST_F(MpiRoutes, HopsThatWrapDoNotCross) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const int hops = (MpiEndpoint(MPI_COMM_WORLD, {}).largest_tag - kFirstDataTag + 1) / Route::kChannels;
  const int previous = previous_rank(rank_, size_);
  const auto block = pattern(70'000, rank_, 1), sums = pattern(70'000, rank_, 2);
  auto got_block = poisoned(70'000), got_sums = poisoned(70'000);
  const auto one = comm->shift(INT_MAX, block, got_block);
  const auto two = comm->shift(INT_MAX % hops, sums, got_sums, {.channel = 1});
  two->wait(soon());
  one->wait(soon());
  EXPECT_TRUE(got_block == pattern(70'000, previous, 1));
  EXPECT_TRUE(got_sums == pattern(70'000, previous, 2));
}

TEST_F(MpiRoutes, DeadlineNamesThePeersOfTheRoute) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  if (size_ == 2) GTEST_SKIP() << "rank 0 would be its own peer";
  if (rank_ != 0) return;
  const auto block = pattern(kSizes.back(), 0, 4);
  auto got = poisoned(90);
  const auto shift = comm->shift(4, block, got, {.distance = -2, .channel = 1});
  const int to = (size_ - 2) % size_, from = 2 % size_;
  EXPECT_EQ(without_time(comm_error_of([&] { shift->wait(Clock::now() + milliseconds(50)); })),
            "rank 0, hop 4: timed out after T s waiting for 90 bytes from rank " + std::to_string(from) +
                " (0 arrived) and for rank " + std::to_string(to) + " to take 3145729 bytes (0 taken)");
}

// Every rank expects a byte too much on channel 1: both channels of every rank end with that word.
TEST_F(MpiRoutes, AFailureOfOneChannelFailsTheOther) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const auto block = pattern(100, rank_, 0);
  auto got = poisoned(100), wrong = poisoned(101);
  const auto other = comm->shift(3, {}, got);  // nobody sends
  const auto shift = comm->shift(7, block, wrong, {.distance = -1, .channel = 1});
  const std::string why = place(rank_, 7) + ": rank " + std::to_string(next_rank(rank_, size_)) +
                          " sends 100 bytes, 101 are expected";
  EXPECT_EQ(comm_error_of([&] { shift->wait(soon()); }), why);
  EXPECT_EQ(comm_error_of([&] { other->test(); }), why);
  EXPECT_TRUE(contains(comm_error_of([&] { (void)comm->shift(8, {}, {}); }), why));
  EXPECT_TRUE(wrong == poisoned(101) && got == poisoned(100));
}

// One chunk of 4096 bytes at a time, and one a test(): the block is given up after its first one.
TEST_F(MpiRoutes, AHalfDoneShiftIsGivenUpBesideAnother) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 4096, .chunks_in_flight = 1});
  const auto kept = pattern(kSizes.back(), rank_, 0), lent = pattern(kSizes.back(), rank_, 1);
  auto got_kept = poisoned(kept.size()), got = poisoned(lent.size());
  {
    const auto other = comm->shift(0, kept, got_kept);
    auto given_up = comm->shift(5, lent, got, {.distance = 2, .channel = 1});
    const Deadline limit = soon();
    while (given_up->arrived() == 0 && Clock::now() < limit) {
      other->test();
      given_up->test();
    }
    EXPECT_EQ(given_up->arrived(), 4096u);
    given_up.reset();
    EXPECT_TRUE(contains(comm_error_of([&] { other->test(); }), "hop 5: the shift was given up"));
  }
  EXPECT_TRUE(
      contains(comm_error_of([&] { (void)comm->shift(1, {}, {}); }), "hop 5: the shift was given up"));
  const auto expected = pattern(4096, rank_at(rank_, -2, size_), 1);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin()));
  MPI_Barrier(MPI_COMM_WORLD);  // the blocks stay until nobody reads them
}

}  // namespace
}  // namespace ringattn::test
