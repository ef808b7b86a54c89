#include "launch/steps.h"

#include <gtest/gtest.h>

#include <mutex>

#include "launch/ranks.h"
#include "src/error.h"

namespace ringattn::launch {
namespace {

using namespace std::chrono_literals;

ExitCode run(int ranks, const std::function<void(Communicator&)>& body) {
  return run_thread_ranks(ranks,
                          [&](const std::shared_ptr<Communicator>& comm, const Seat&) { body(*comm); });
}

TEST(Steps, AFailureInASharedStepEndsAllRanksWithItsCode) {
  const std::vector<std::pair<std::function<void()>, ExitCode>> failures{
      {[] { throw UsageError("--x is 'y'"); }, ExitCode::usage},
      {[] { throw DataError("k.npy: not found"); }, ExitCode::data},
      {[] { throw OutOfMemory("needs 9 GiB"); }, ExitCode::memory},
      {[] { throw DeviceError("no device"); }, ExitCode::device},
      {[] { throw std::logic_error("broken promise"); }, ExitCode::bug}};
  for (const auto& failure : failures) {
    const auto& fail = failure.first;
    const ExitCode code = failure.second;
    std::mutex mutex;
    int shared = 0;
    testing::internal::CaptureStderr();
    const ExitCode end = run(3, [&](Communicator& comm) {
      try {
        shared_step(comm, 5s, [&] {
          if (comm.rank() == 2) fail();
        });
      } catch (const SharedFailure& e) {
        EXPECT_EQ(e.failure().code, code);
        const std::lock_guard lock(mutex);
        ++shared;
        throw;
      }
    });
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(end, code);
    EXPECT_EQ(shared, 3);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;  // printed once
    EXPECT_NE(text.find("ringattn: rank 2: "), std::string::npos) << text;
  }
}

TEST(Steps, AFailureAloneEndsTheOthersToo) {
  testing::internal::CaptureStderr();
  const auto start = Clock::now();
  const ExitCode end = run(3, [](Communicator& comm) {
    if (comm.rank() == 1) throw std::runtime_error("alone");
    meet(comm, 30s);
  });
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(end, ExitCode::bug);
  EXPECT_EQ(text, "ringattn: rank 1: alone (internal error)\n");
  EXPECT_LT(Clock::now() - start, 10s);
}

TEST(Steps, ARankThatDoesNotComeIsACommunicationError) {
  testing::internal::CaptureStderr();
  const ExitCode end = run(2, [](Communicator& comm) {
    if (comm.rank() == 0) meet(comm, 100ms);
  });
  EXPECT_EQ(end, ExitCode::communication);
  EXPECT_FALSE(testing::internal::GetCapturedStderr().empty());
}

TEST(Steps, ValuesAndTextsArriveInRankOrder) {
  EXPECT_EQ(run(5,
                [](Communicator& comm) {
                  EXPECT_EQ(gather_values(comm, comm.rank() * 10, 5s), (std::vector<int>{0, 10, 20, 30, 40}));
                  const auto texts =
                      gather_texts(comm, std::string(static_cast<std::size_t>(comm.rank()), 'x'), 5s);
                  EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx", "xxx", "xxxx"}));
                }),
            ExitCode::ok);
}

TEST(Launcher, SeveralProcessesAreOneRingOrNone) {
  Options options;
  const Launcher three{.present = true, .size = 3};
  for (const auto kind : {CommunicatorKind::self, CommunicatorKind::threads}) {
    options.communicator = kind;
    EXPECT_THROW(check_communicator(options, three), UsageError);
    EXPECT_NO_THROW(check_communicator(options, {}));
  }
  options.communicator = CommunicatorKind::mpi;
  if (mpi_library().empty()) {
    EXPECT_THROW(check_communicator(options, {}), UsageError);
  } else {
    EXPECT_NO_THROW(check_communicator(options, three));
  }
}

}  // namespace
}  // namespace ringattn::launch
