// Rings inside sub-communicators (case A26), beside the caller's own traffic.
#include <algorithm>
#include <array>

#include "comm/last_words.h"
#include "comm/mpi.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

// A sub-communicator that is freed at the end of its scope.
class Split {
 public:
  Split(int color, int key) { MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm_); }
  ~Split() { MPI_Comm_free(&comm_); }
  Split(const Split&) = delete;
  Split& operator=(const Split&) = delete;
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

struct World {
  int rank = 0, size = 0;
  World() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
};

// A full turn with data that differs by group, so that a block of the other group shows.
void check_group(Communicator& comm, int group) {
  check_full_turn(comm);
  check_all_gather(comm);
  auto slot = pattern(70'000, comm.rank(), 10 + group), other = poisoned(70'000);
  for (int hop = 0; hop < comm.size(); ++hop) {
    comm.shift(hop, slot, other)->wait(soon());
    std::swap(slot, other);
    const int owner = ((comm.rank() - hop - 1) % comm.size() + comm.size()) % comm.size();
    EXPECT_TRUE(slot == pattern(70'000, owner, 10 + group)) << "group " << group << ", hop " << hop;
  }
}

// {0,1},{2,3} and {0,2},{1,3} at four ranks, and the same rules at other numbers.
TEST(MpiGroups, BothGroupsTurnAtOnce) {
  const World world;
  for (const int color : {world.rank / 2, world.rank % 2}) {
    const Split split(color, world.rank);
    const auto comm = make_mpi_communicator(split.get());
    check_group(*comm, color);
  }
}

TEST(MpiGroups, ReversedRankOrder) {
  const World world;
  const Split split(0, -world.rank);
  const auto comm = make_mpi_communicator(split.get());
  EXPECT_EQ(comm->rank(), world.size - 1 - world.rank);
  check_group(*comm, 0);
}

TEST(MpiGroups, EveryRankAloneIsARingOfOne) {
  const World world;
  const Split split(world.rank, 0);
  const auto comm = make_mpi_communicator(split.get());
  EXPECT_EQ(comm->size(), 1);
  check_equal_sizes(*comm);
  check_group(*comm, world.rank);
}

// The caller may free its communicator: the ring has its own.
TEST(MpiGroups, OutlivesTheCallersCommunicator) {
  std::unique_ptr<Communicator> comm;
  {
    const Split split(0, 0);
    comm = make_mpi_communicator(split.get());
  }
  check_equal_sizes(*comm);
}

TEST(MpiGroups, CallersErrorHandlerIsLeftAlone) {
  const Split split(0, 0);
  MPI_Errhandler before = MPI_ERRHANDLER_NULL, after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(split.get(), &before);
  const auto comm = make_mpi_communicator(split.get());
  check_many_shifts(*comm, 3);
  MPI_Comm_get_errhandler(split.get(), &after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(after, MPI_ERRORS_ARE_FATAL);  // MPI's default, which the ring's own must not have changed
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&after);
}

// A receive for anything from anybody on the caller's communicator gets the caller's message, none of ours.
TEST(MpiGroups, CallersTrafficIsLeftAlone) {
  const World world;
  std::array<char, 100> inbox{};
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(inbox.data(), inbox.size(), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
  {
    const auto comm = make_mpi_communicator(MPI_COMM_WORLD);
    check_many_shifts(*comm, 10);
    check_all_gather(*comm);
  }
  int early = 0;
  MPI_Test(&request, &early, MPI_STATUS_IGNORE);
  EXPECT_EQ(early, 0);
  MPI_Barrier(MPI_COMM_WORLD);
  const std::array<char, 6> letter = {'h', 'e', 'l', 'l', 'o', '\0'};
  MPI_Request sending = MPI_REQUEST_NULL;
  MPI_Isend(letter.data(), letter.size(), MPI_BYTE, next_rank(world.rank, world.size), 77, MPI_COMM_WORLD,
            &sending);
  MPI_Status status;
  MPI_Wait(&request, &status);
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
  EXPECT_STREQ(inbox.data(), "hello");
  EXPECT_EQ(status.MPI_TAG, 77);
}

}  // namespace
}  // namespace ringattn::test
