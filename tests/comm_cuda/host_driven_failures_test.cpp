// comm/staged, comm/mpi_device and comm/device_ranks when a peer stalls or sends something else.
#include <gtest/gtest.h>

#include "comm/device_ranks.h"
#include "comm/last_words.h"
#include "comm/mpi_device.h"
#include "comm/staged.h"
#include "src/error.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<DeviceCommunicator> staged(RankThread& me) {
  return make_staged(me.host, me.stream, {.chunk_bytes = 1000});
}
std::unique_ptr<DeviceCommunicator> direct(RankThread& me) {
  return make_mpi_device([&, calls = 0]() mutable { return calls++ == 0 ? me.host : me.aside; }, me.stream,
                         {.claimed = true})
      .comm;
}
std::unique_ptr<DeviceCommunicator> device_ranks(RankThread& me) {
  return make_device_ranks(me.host, me.stream);
}

class HostDriven : public testing::TestWithParam<std::unique_ptr<DeviceCommunicator> (*)(RankThread&)> {
 protected:
  std::unique_ptr<DeviceCommunicator> make(RankThread& me) const { return GetParam()(me); }
};

// What the shift of one rank throws.
std::string error_of_shift(const RankThread& me, DeviceCommunicator& comm, int hop, std::size_t to_next,
                           std::size_t from_prev, milliseconds patience) {
  const DeviceBlock mine(to_next), got(from_prev);
  write_zero(me.stream, mine.bytes());
  const std::string text =
      comm_error_of([&] { comm.shift(hop, mine.bytes(), got.bytes())->wait(Clock::now() + patience); });
  cudaStreamSynchronize(me.stream);
  return text;
}

TEST_P(HostDriven, APeerThatStallsIsNamedAtTheDeadlineOnEveryRank) {
  on_ranks(3, [&](RankThread& me) {
    const auto comm = make(me);
    if (me.rank == 1) me.meet();
    const Deadline start = Clock::now();
    const std::string text = without_time(error_of_shift(me, *comm, 3, 2500, 2500, milliseconds(150)));
    EXPECT_TRUE(
        contains(text, "rank " + std::to_string(me.rank) + ", hop 3: timed out after T s waiting for"))
        << text;
    if (me.rank != 1) {
      EXPECT_TRUE(contains(text, "rank 1")) << text;
    }
    EXPECT_GE(Clock::now() - start, milliseconds(150));
    EXPECT_LT(Clock::now() - start, milliseconds(1150));
    EXPECT_TRUE(contains(comm_error_of([&] { (void)comm->shift(4, {}, {}); }), "failed before"));
    EXPECT_THROW(comm->settle(soon()), CommError);
    if (me.rank != 1) me.meet();
  });
}

// A block that is one byte longer than expected, as many chunks or one more; both ends hear of it.
TEST_P(HostDriven, AWrongSizeIsNamedWithBothSizes) {
  for (const std::size_t expected : {999u, 1000u, 2500u}) {
    on_ranks(2, [&](RankThread& me) {
      const auto comm = make(me);
      if (me.rank == 1) {
        const std::string text = error_of_shift(me, *comm, 2, 0, expected, milliseconds(5000));
        EXPECT_EQ(text, "rank 1, hop 2: rank 0 sends " + std::to_string(expected + 1) + " bytes, " +
                            std::to_string(expected) + " are expected");
      } else {
        EXPECT_FALSE(error_of_shift(me, *comm, 2, expected + 1, 0, milliseconds(300)).empty());
      }
      me.meet();
    });
  }
}

TEST_P(HostDriven, AnotherHopIsNamed) {
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make(me);
    const std::string text = me.rank == 0 ? error_of_shift(me, *comm, 7, 10, 0, milliseconds(300))
                                          : error_of_shift(me, *comm, 8, 0, 10, milliseconds(5000));
    if (me.rank == 1) {
      EXPECT_EQ(text, "rank 1, hop 8: rank 0 sends its block of hop 7");
    }
    me.meet();
  });
}

TEST_P(HostDriven, AShiftGivenUpFailsWhatComesLater) {
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make(me);
    const DeviceBlock mine(2500), got(2500);
    write_zero(me.stream, mine.bytes());
    if (me.rank == 0) {
      (void)comm->shift(2, mine.bytes(), got.bytes());
      EXPECT_EQ(comm_error_of([&] { (void)comm->shift(3, {}, {}); }),
                "rank 0, hop 3: this communicator failed before: rank 0, hop 2: the shift was given up");
    }
    cudaStreamSynchronize(me.stream);
    me.meet();
  });
}

TEST_P(HostDriven, AbortIsHeardByAPeerThatWaits) {
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make(me);
    if (me.rank == 0) return comm->abort(4, "rank 0 has had enough");
    EXPECT_EQ(error_of_shift(me, *comm, 0, 10, 10, milliseconds(5000)), "rank 0 has had enough");
  });
}

std::string name_of_carrier(
    const testing::TestParamInfo<std::unique_ptr<DeviceCommunicator> (*)(RankThread&)>& t) {
  const char* const names[] = {"staged", "direct", "device_ranks"};
  return names[t.index];
}
INSTANTIATE_TEST_SUITE_P(Carriers, HostDriven, testing::Values(&staged, &direct, &device_ranks),
                         name_of_carrier);

TEST(Staged, RefusesOptionsOutOfRange) {
  on_ranks(1, [](RankThread& me) {
    EXPECT_THROW((void)make_staged(me.host, me.stream, {.chunk_bytes = 0}), UsageError);
    EXPECT_THROW((void)make_staged(me.host, me.stream, {.buffers = 1}), UsageError);
    EXPECT_THROW((void)make_staged(nullptr, me.stream), UsageError);
    EXPECT_THROW((void)make_staged(me.host, nullptr), UsageError);
    EXPECT_THROW((void)make_device_ranks(nullptr, me.stream), UsageError);
    EXPECT_THROW((void)make_device_ranks(me.host, nullptr), UsageError);
  });
}

TEST(Staged, ChunksOfDifferentSizesAreRefused) {
  on_ranks(2, [](RankThread& me) {
    const auto comm = make_staged(me.host, me.stream, {.chunk_bytes = me.rank == 0 ? 1000u : 500u});
    const std::string text = error_of_shift(me, *comm, 1, 2000, 2000, milliseconds(500));
    const int other = 1 - me.rank, theirs = other == 0 ? 1000 : 500;
    EXPECT_EQ(text, "rank " + std::to_string(me.rank) + ", hop 1: rank " + std::to_string(other) +
                        " sends chunks of " + std::to_string(theirs) + " bytes, " +
                        std::to_string(1500 - theirs) + " are expected");
    me.meet();
  });
}

}  // namespace
}  // namespace ringattn::test
