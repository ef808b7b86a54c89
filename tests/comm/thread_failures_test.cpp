// What ranks hear when another one fails, comes late or sends something else.
#include <atomic>
#include <thread>

#include "comm/threads.h"
#include "tests/comm/pattern.h"
#include "tests/comm/ring_checks.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

// Runs one rank's part on a thread of its own and returns the CommError it ended with.
std::string error_of_rank(Communicator& comm, int hop, std::size_t to_next, std::size_t from_prev,
                          Deadline deadline) {
  const auto block = pattern(to_next, comm.rank(), hop);
  auto got = poisoned(from_prev);
  return comm_error_of([&] { comm.shift(hop, block, got)->wait(deadline); });
}

TEST(ThreadFailures, DeadlineNamesEveryPendingOperation) {
  auto comms = make_thread_communicators(3);
  const Deadline start = Clock::now();
  const std::string text = without_time(error_of_rank(*comms[1], 3, 7000, 5000, in(100)));
  EXPECT_EQ(text,
            "rank 1, hop 3: timed out after T s waiting for 5000 bytes from rank 0 (0 arrived) and for "
            "rank 2 to take 7000 bytes (0 taken)");
  EXPECT_GE(Clock::now() - start, milliseconds(100));
  EXPECT_LT(Clock::now() - start, milliseconds(1100));  // deadline + 1 s, faults.md
}

TEST(ThreadFailures, DeadlineNamesOnlyWhatIsPending) {
  auto comms = make_thread_communicators(3);
  EXPECT_EQ(without_time(error_of_rank(*comms[0], 0, 0, 10, in(20))),
            "rank 0, hop 0: timed out after T s waiting for 10 bytes from rank 2 (0 arrived)");
  EXPECT_EQ(without_time(error_of_rank(*comms[2], 0, 11, 0, in(20))),
            "rank 2, hop 0: timed out after T s waiting for rank 0 to take 11 bytes (0 taken)");
}

TEST(ThreadFailures, DeadlineTellsHowMuchHasMoved) {
  auto comms = make_thread_communicators(2);
  const std::size_t size = kSizes.back();
  const auto block = pattern(size, 0, 0);
  auto got = poisoned(size);
  const auto sending = comms[0]->shift(0, block, {});
  const auto receiving = comms[1]->shift(0, {}, got);
  EXPECT_FALSE(receiving->test());  // one piece of 1 MiB
  const std::string text = comm_error_of([&] { sending->wait(in(10)); });
  EXPECT_TRUE(contains(text, "for rank 1 to take 3145729 bytes (1048576 taken)")) << text;
}

TEST(ThreadFailures, WrongSizeIsNamedOnBothSides) {
  auto comms = make_thread_communicators(2);
  std::string sender, receiver;
  {
    std::jthread other([&] { sender = error_of_rank(*comms[0], 2, 4095, 0, soon()); });
    receiver = error_of_rank(*comms[1], 2, 0, 4096, soon());
  }
  EXPECT_EQ(receiver, "rank 1, hop 2: rank 0 sends 4095 bytes, 4096 are expected");
  EXPECT_EQ(sender, "rank 0, hop 2: refused by its receiver: " + receiver);
}

TEST(ThreadFailures, LongerBlockWritesNothing) {
  auto comms = make_thread_communicators(2);
  const auto block = pattern(101, 0, 0);
  auto got = poisoned(100);
  const auto sending = comms[0]->shift(0, block, {});
  const auto receiving = comms[1]->shift(0, {}, got);
  const std::string text = comm_error_of([&] { receiving->test(); });
  EXPECT_TRUE(contains(text, "101 bytes, 100 are expected")) << text;
  EXPECT_TRUE(got == poisoned(100));
}

TEST(ThreadFailures, AnotherHopIsNamedOnBothSides) {
  auto comms = make_thread_communicators(2);
  std::string sender, receiver;
  {
    std::jthread other([&] { sender = error_of_rank(*comms[0], 6, 100, 0, soon()); });
    receiver = error_of_rank(*comms[1], 5, 0, 100, soon());
  }
  EXPECT_EQ(receiver, "rank 1, hop 5: rank 0 sends its block of hop 6");
  EXPECT_TRUE(contains(sender, "rank 0, hop 6")) << sender;
}

TEST(ThreadFailures, AfterAFailureTheCommunicatorIsOfNoUse) {
  auto comms = make_thread_communicators(2);
  const std::string first = error_of_rank(*comms[0], 1, 10, 10, in(10));
  const std::string second = error_of_rank(*comms[0], 2, 10, 10, soon());
  EXPECT_TRUE(contains(second, "rank 0, hop 2") && contains(second, first)) << second;
  EXPECT_EQ(comm_error_of([&] { comms[0]->all_gather({}, soon()); }), first);
}

TEST(ThreadFailures, ABlockGivenUpIsNotReadAnyMore) {
  auto comms = make_thread_communicators(2);
  auto got = poisoned(10);
  {
    const auto block = pattern(10, 0, 0);
    const auto given_up = comms[0]->shift(0, block, {});
  }
  const std::string text = comm_error_of([&] { comms[1]->shift(0, {}, got)->wait(in(10)); });
  EXPECT_TRUE(contains(text, "waiting for 10 bytes from rank 0 (0 arrived)")) << text;
  EXPECT_TRUE(got == poisoned(10));
  EXPECT_TRUE(contains(comm_error_of([&] { (void)comms[0]->shift(1, {}, {}); }), "given up"));
}

TEST(ThreadFailures, GatherNamesTheMissingRanks) {
  auto comms = make_thread_communicators(4);
  const auto blob = pattern(8, 1, 0);
  std::string early;
  {
    std::jthread other([&] { early = comm_error_of([&] { comms[3]->all_gather({}, in(300)); }); });
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(without_time(comm_error_of([&] { comms[1]->all_gather(blob, in(100)); })),
              "rank 1: timed out after T s in all_gather (8 bytes of its own) waiting for rank 0 and rank 2");
  }
  EXPECT_TRUE(contains(early, "waiting for rank 0 and rank 2")) << early;
}

TEST(ThreadFailures, AbortReachesPendingAndLaterOperations) {
  auto comms = make_thread_communicators(3);
  std::string shifting, gathering;
  {
    std::jthread one([&] { shifting = error_of_rank(*comms[1], 0, 10, 10, soon()); });
    std::jthread two([&] { gathering = comm_error_of([&] { comms[2]->all_gather({}, soon()); }); });
    std::this_thread::sleep_for(milliseconds(50));
    comms[0]->abort(3, "rank 0: q.npy is missing");
    comms[0]->abort(3, "a second reason");
  }
  EXPECT_EQ(shifting, "rank 0: q.npy is missing");
  EXPECT_EQ(gathering, "rank 0: q.npy is missing");
  EXPECT_EQ(error_of_rank(*comms[0], 1, 10, 10, soon()), "rank 0: q.npy is missing");
  EXPECT_EQ(comm_error_of([&] { comms[1]->all_gather({}, soon()); }), "rank 0: q.npy is missing");
}

// The failing rank's own exception comes out, not one of those it caused (case A10).
TEST(ThreadFailures, ThrowingRankEndsTheOthersAndIsTheOneReported) {
  for (int failing = 0; failing < 4; ++failing) {
    std::atomic<int> told = 0;
    const Deadline start = Clock::now();
    try {
      run_thread_ranks(4, [&](const std::shared_ptr<Communicator>& comm) {
        const auto block = pattern(70'000, comm->rank(), 0);
        auto got = poisoned(70'000);
        if (comm->rank() == failing) {
          const auto unfinished = comm->shift(0, block, got);
          throw DataError("k.npy: truncated");
        }
        try {
          comm->shift(0, block, got)->wait(soon());
          comm->all_gather({}, soon());
        } catch (const CommError& error) {
          const std::string expected = "rank " + std::to_string(failing) + " failed: k.npy: truncated";
          if (error.what() == expected) ++told;
          throw;
        }
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "k.npy: truncated");
    }
    EXPECT_EQ(told, 3);
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(2));  // faults.md: one rank throws, < 2 s
  }
}

TEST(ThreadFailures, ExceptionsOfAnyTypeComeOut) {
  EXPECT_THROW(run_thread_ranks(3,
                                [](const std::shared_ptr<Communicator>& comm) {
                                  if (comm->rank() == 2) throw 17;
                                  comm->all_gather({}, soon());
                                }),
               int);
}

}  // namespace
}  // namespace ringattn::test
