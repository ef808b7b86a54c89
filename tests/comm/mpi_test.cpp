// The ring over MPI at any number of ranks.
#include "comm/mpi.h"

#include <algorithm>
#include <thread>

#include "comm/last_words.h"
#include "comm/throttled.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm/route_checks.h"

namespace ringattn::test {
namespace {

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}
int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

void check_everything(Communicator& comm) {
  check_equal_sizes(comm);
  check_sizes_that_differ(comm);
  check_full_turn(comm);
  check_many_shifts(comm, 200);
  check_all_gather(comm);
  check_sent_count(comm);
  check_one_shift_at_a_time(comm);
  check_distances(comm);
  check_channels(comm);
  check_arrivals(comm);
  check_refusals(comm);
}

TEST(Mpi, KnowsItsRanks) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  EXPECT_EQ(comm->name(), "mpi");
  EXPECT_EQ(comm->rank(), world_rank());
  EXPECT_EQ(comm->size(), world_size());
}

TEST(Mpi, DoesWhatEveryCommunicatorDoes) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  check_everything(*comm);
}

// Case A21 test 2: chunks of 1000 bytes bring the same bytes. Windows of one and of more chunks than a block
// has; chunks of one byte only for small blocks, since there are as many messages.
TEST(Mpi, ChunkSizeDoesNotChangeTheBytes) {
  for (const int in_flight : {1, 3, 10'000}) {
    const auto comm =
        make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 1000, .chunks_in_flight = in_flight});
    check_equal_sizes(*comm);
    check_sizes_that_differ(*comm);
  }
  check_equal_sizes(*make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 2147483647}));
  const auto bytewise = make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = 1});
  check_many_shifts(*bytewise, 3);
  check_all_gather(*bytewise);
}

TEST(Mpi, TestAloneMakesProgress) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const std::size_t size = 5 * (std::size_t{2} << 20) + 3;  // more chunks than are in flight at once
  const auto block = pattern(size, comm->rank(), 0);
  auto got = poisoned(size);
  const auto shift = comm->shift(0, block, got);
  const Deadline limit = soon();
  while (!shift->test() && Clock::now() < limit) std::this_thread::yield();
  EXPECT_TRUE(shift->test());
  EXPECT_TRUE(got == pattern(size, previous_rank(comm->rank(), comm->size()), 0));
}

// Data comes from another rank's memory although sender and receiver look at different times.
TEST(Mpi, WaitReturnsOnlyWhenTheBlockMayBeOverwritten) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  for (int hop = 0; hop < 20; ++hop) {
    auto block = pattern(70'000, comm->rank(), hop);
    auto got = poisoned(70'000);
    const auto shift = comm->shift(hop, block, got);
    if (comm->rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    shift->wait(soon());
    std::fill(block.begin(), block.end(), std::byte{0xff});
    EXPECT_TRUE(got == pattern(70'000, previous_rank(comm->rank(), comm->size()), hop));
  }
}

// A rank may be a hop ahead of its neighbour; blocks of the two hops have the same size.
TEST(Mpi, ARankAheadDoesNotMixHops) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  for (int hop = 0; hop < 50; ++hop) {
    // Only rank 0 sends, so it never waits for anybody but its own receiver; small blocks leave at once.
    const std::size_t out = comm->rank() == 0 ? 64 : 0;
    const std::size_t in = previous_rank(comm->rank(), comm->size()) == 0 ? 64 : 0;
    const auto block = pattern(out, comm->rank(), hop);
    auto got = poisoned(in);
    if (comm->rank() == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));
    comm->shift(hop, block, got)->wait(soon());
    EXPECT_TRUE(got == pattern(in, 0, hop)) << "hop " << hop;
  }
}

TEST(Mpi, TwoCommunicatorsAtOnceDoNotMix) {
  const auto one = make_mpi_communicator(MPI_COMM_WORLD), two = make_mpi_communicator(MPI_COMM_WORLD);
  const int previous = previous_rank(one->rank(), one->size());
  const auto block_one = pattern(70'000, one->rank(), 1), block_two = pattern(70'000, one->rank(), 2);
  auto got_one = poisoned(70'000), got_two = poisoned(70'000);
  const auto shift_one = one->shift(0, block_one, got_one);
  const auto shift_two = two->shift(0, block_two, got_two);
  shift_two->wait(soon());
  shift_one->wait(soon());
  EXPECT_TRUE(got_one == pattern(70'000, previous, 1));
  EXPECT_TRUE(got_two == pattern(70'000, previous, 2));
}

// A gather may be made while a block is under way.
TEST(Mpi, GatherDuringAShift) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const auto block = pattern(1'000'000, comm->rank(), 0);
  auto got = poisoned(1'000'000);
  const auto shift = comm->shift(0, block, got);
  check_all_gather(*comm);
  shift->wait(soon());
  EXPECT_TRUE(got == pattern(1'000'000, previous_rank(comm->rank(), comm->size()), 0));
}

TEST(Mpi, ThrottledLinkBringsTheSameBytes) {
  const auto comm = make_throttled(make_mpi_communicator(MPI_COMM_WORLD), {.latency_us = 2000});
  EXPECT_EQ(comm->name(), "throttled(mpi)");
  const Deadline start = Clock::now();
  check_equal_sizes(*comm);
  // Every size but 0 takes the latency.
  EXPECT_GE(Clock::now() - start, (kSizes.size() - 1) * std::chrono::milliseconds(2));
  check_all_gather(*comm);
}

TEST(Mpi, OptionsOutOfRangeAreNamed) {
  const auto text = [](const MpiOptions& options, MPI_Comm comm) -> std::string {
    try {
      make_mpi_communicator(comm, options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  EXPECT_TRUE(contains(text({.chunk_bytes = 0}, MPI_COMM_WORLD), "chunk_bytes is 0"));
  EXPECT_TRUE(contains(text({.chunk_bytes = 2147483648}, MPI_COMM_WORLD), "chunk_bytes is 2147483648"));
  EXPECT_TRUE(contains(text({.chunks_in_flight = 0}, MPI_COMM_WORLD), "chunks_in_flight is 0"));
  EXPECT_TRUE(contains(text({}, MPI_COMM_NULL), "MPI_COMM_NULL"));
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  EXPECT_THROW((void)comm->shift(-1, {}, {}), UsageError);
}

}  // namespace
}  // namespace ringattn::test
