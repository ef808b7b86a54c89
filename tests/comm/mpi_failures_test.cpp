// What ranks hear over MPI when another one comes late or sends something else. Each test has a communicator
// of its own, since a failed one is of no further use, and ends with all ranks together.
#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "comm/last_words.h"
#include "comm/mpi.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

class MpiFailures : public testing::Test {
 protected:
  void SetUp() override {
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    if (size_ < 2) GTEST_SKIP() << "needs two ranks";
  }
  void TearDown() override { MPI_Barrier(MPI_COMM_WORLD); }

  // Rank 0 sends to rank 1 and nothing else travels. The text of the receiver's error; the sender may end
  // well, when its bytes fit a buffer of MPI, or find at its short deadline that they are not taken.
  std::string error_of_receiver(Communicator& comm, int send_hop, std::size_t sent, int receive_hop,
                                std::size_t expected) {
    if (rank_ == 0) {
      const auto block = pattern(sent, 0, send_hop);
      try {
        comm.shift(send_hop, block, {})->wait(Clock::now() + milliseconds(200));
      } catch (const CommError& error) {
        EXPECT_TRUE(contains(error.what(), "for rank 1 to take " + std::to_string(sent) + " bytes"))
            << error.what();
      }
    }
    if (rank_ != 1) return {};
    // Room behind the block for all that is sent: not a byte of a wrong block is written, nor behind it.
    auto got = poisoned(expected + sent);
    const std::string text =
        comm_error_of([&] { comm.shift(receive_hop, {}, std::span(got).first(expected))->wait(soon()); });
    EXPECT_TRUE(got == poisoned(expected + sent));
    return text;
  }

  int rank_ = 0, size_ = 0;
};

// With three ranks and more the two neighbours are different ranks, and both name rank 1.
TEST_F(MpiFailures, DeadlineNamesThePeerThatStandsStill) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const int next = next_rank(rank_, size_), previous = previous_rank(rank_, size_);
  const std::size_t size = kSizes.back();
  const auto block = pattern(size, rank_, 3);
  auto got = poisoned(size);
  const Deadline start = Clock::now();
  if (rank_ == 1) {
    std::this_thread::sleep_for(milliseconds(700));
  } else if (next != 1 && previous != 1) {
    comm->shift(3, block, got)->wait(soon());
  } else {
    const auto shift = comm->shift(3, block, got);
    const std::string text = without_time(comm_error_of([&] { shift->wait(start + milliseconds(300)); }));
    EXPECT_LT(Clock::now() - start, milliseconds(1300));  // deadline + 1 s, faults.md
    EXPECT_TRUE(contains(text, "rank " + std::to_string(rank_) + ", hop 3: timed out after T s waiting"))
        << text;
    if (previous == 1) {
      EXPECT_TRUE(contains(text, "waiting for 3145729 bytes from rank 1 (0 arrived)")) << text;
    }
    if (next == 1) {
      EXPECT_TRUE(contains(text, "for rank 1 to take 3145729 bytes (0 taken)")) << text;
    }
    // Said again at once by whatever is called next.
    EXPECT_EQ(without_time(comm_error_of([&] { shift->test(); })), text);
    EXPECT_EQ(without_time(comm_error_of([&] { comm->all_gather({}, soon()); })), text);
    const std::string later = without_time(comm_error_of([&] { (void)comm->shift(4, block, got); }));
    EXPECT_TRUE(contains(later, "hop 4") && contains(later, text)) << later;
  }
}

// Shorter and longer by one byte, and by whole chunks of 2 MiB, which no chunk shows.
TEST_F(MpiFailures, WrongSizeIsNamedByTheReceiver) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  const std::vector<std::pair<std::size_t, std::size_t>> cases = {
      {4999, 5000}, {5001, 5000}, {1, 70'000}, {70'000, 1}, {4 * kMiB, 8 * kMiB}, {8 * kMiB, 4 * kMiB}};
  for (const auto& [sent, expected] : cases) {
    const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
    const std::string text = error_of_receiver(*comm, 2, sent, 2, expected);
    if (rank_ == 1) {
      EXPECT_EQ(text, size_text(1, 2, 0, sent, expected));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_F(MpiFailures, AnotherHopIsNamedByTheReceiver) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const std::string text = error_of_receiver(*comm, 6, 5000, 5, 5000);
  if (rank_ == 1) {
    EXPECT_EQ(text, "rank 1, hop 5: rank 0 sends its block of hop 6");
  }
}

TEST_F(MpiFailures, OtherChunkSizeIsNamedByTheReceiver) {
  const auto comm =
      make_mpi_communicator(MPI_COMM_WORLD, {.chunk_bytes = rank_ == 0 ? std::size_t{1000} : 2000});
  const std::string text = error_of_receiver(*comm, 0, 5000, 0, 5000);
  if (rank_ == 1) {
    EXPECT_EQ(text, "rank 1, hop 0: rank 0 sends chunks of 1000 bytes, 2000 are expected");
  }
}

TEST_F(MpiFailures, AShiftGivenUpEndsItsCommunicator) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  {
    std::vector<std::byte> got(70'000);
    const auto given_up = comm->shift(0, {}, got);  // nobody sends
  }
  const std::string text = comm_error_of([&] { (void)comm->shift(1, {}, {}); });
  EXPECT_TRUE(contains(text, "hop 0: the shift was given up")) << text;
}

TEST_F(MpiFailures, GatherNamesTheMissingRank) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const Deadline start = Clock::now();
  if (rank_ == 1) {
    std::this_thread::sleep_for(milliseconds(700));
  } else {
    const auto blob = pattern(8, rank_, 0);
    EXPECT_EQ(without_time(comm_error_of([&] { comm->all_gather(blob, start + milliseconds(300)); })),
              "rank " + std::to_string(rank_) +
                  ": timed out after T s in all_gather (8 bytes of its own) waiting for rank 1");
  }
}

// Case A21: nothing is sent, so the memory is never touched.
TEST_F(MpiFailures, GatherOfMoreThanAnIntIsRefusedByAllRanks) {
  const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
  const std::size_t size = rank_ < 2 ? std::size_t{1} << 30 : 0;  // 2^31 in all
  const std::unique_ptr<std::byte[]> blob(new std::byte[size]);
  EXPECT_EQ(
      comm_error_of([&] {
        comm->all_gather({blob.get(), size}, soon());
      }),
      "rank " + std::to_string(rank_) +
          ", all_gather: with rank 1's blob of 1073741824 bytes there are more than 2147483647 bytes in "
          "all");
}

}  // namespace
}  // namespace ringattn::test
