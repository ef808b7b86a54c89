// Whether a transport is given device memory: what is asked, what is tried, and what happens where the answer
// is no. Ranks are threads, whose memory on the harness is that of its devices.
#include "comm/mpi_device.h"

#include <gtest/gtest.h>

#include "comm/faulty.h"
#include "src/error.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/device_checks.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/simt/guard.h"

#ifdef SIMT_ADDRESS_SANITIZER
#include <sanitizer/lsan_interface.h>
#endif

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

// The communicator to stay, and the one of the trial, which may be damaged on one rank.
struct Hosts {
  std::shared_ptr<BlockCount> count = std::make_shared<BlockCount>();
  int damaged_rank = -1;
  std::vector<Fault> damage{};

  std::function<std::shared_ptr<Communicator>()> factory(const RankThread& me) const {
    return [this, &me, calls = 0]() mutable {
      if (calls++ == 0) return make_device_memory_watch(me.host, count);
      std::shared_ptr<Communicator> second = me.aside;
      if (me.rank == damaged_rank) second = make_faulty(std::move(second), damage);
      return second;
    };
  }
};

// While it lives this thread allocates what LeakSanitizer shall not miss.
struct LeftOnPurpose {
#ifdef SIMT_ADDRESS_SANITIZER
  __lsan::ScopedDisabler off{};
#endif
};

// The ring's own messages over what was made, and the same reason everywhere.
void expect_all_right(const RankThread& me, MpiDevice& made, const std::string& name) {
  EXPECT_EQ(made.comm->name(), name);
  const auto reasons = made.comm->all_gather(std::as_bytes(std::span(made.why_staged)), soon());
  for (const auto& reason : reasons) EXPECT_TRUE(reason == reasons[0]);
  check_device_turns(me, *made.comm);
  check_device_backward(me, *made.comm);
}

TEST(MpiDevice, GivesDeviceMemoryToATransportThatCarriesIt) {
  const Hosts hosts;
  for (const int ranks : {1, 2, 3, 5}) {
    on_ranks(ranks, [&](RankThread& me) {
      MpiDevice made = make_mpi_device(hosts.factory(me), me.stream, {.claimed = true});
      EXPECT_EQ(made.why_staged, "");
      expect_all_right(me, made, "direct(threads)");
    });
  }
  EXPECT_GT(hosts.count->device, 0);
  EXPECT_EQ(hosts.count->other, 0);
}

TEST(MpiDevice, IsNotTriedWhereOneRankDoesNotClaimIt) {
  const Hosts hosts;
  on_ranks(3, [&](RankThread& me) {
    MpiDevice made = make_mpi_device(hosts.factory(me), me.stream, {.claimed = me.rank != 1});
    EXPECT_EQ(made.why_staged, "rank 1: its threads does not claim to carry device memory");
    expect_all_right(me, made, "staged(threads)");
  });
  EXPECT_EQ(hosts.count->device, 0);
  EXPECT_GT(hosts.count->other, 0);
}

// One bit of one block of the trial, sent back by rank 2 to rank 1.
TEST(MpiDevice, IsStagedWhereBytesComeOutWrong) {
  const Hosts hosts{.damaged_rank = 2, .damage = {{.kind = Fault::Kind::corrupt, .hop = 2, .channel = 1}}};
  on_ranks(3, [&](RankThread& me) {
    MpiDevice made = make_mpi_device(hosts.factory(me), me.stream, {.claimed = true});
    EXPECT_TRUE(contains(made.why_staged, "rank 1: byte ")) << made.why_staged;
    EXPECT_TRUE(contains(made.why_staged, "of 70001 from rank 2 came as ")) << made.why_staged;
    expect_all_right(me, made, "staged(threads)");
  });
  EXPECT_EQ(hosts.count->device, 0);
}

// The trial's communicator is lost by it; the other one is not.
TEST(MpiDevice, IsStagedWhereTheTrialFallsSilent) {
  const Hosts hosts{.damaged_rank = 0, .damage = {{.kind = Fault::Kind::vanish, .hop = 1}}};
  on_ranks(3, [&](RankThread& me) {
    const Deadline start = Clock::now();
    MpiDevice made = [&] {
      [[maybe_unused]] const LeftOnPurpose
          blocks_of_the_trial;  // MPI may still touch them, see comm/mpi_device_probe.cpp
      return make_mpi_device(hosts.factory(me), me.stream, {.claimed = true, .patience = milliseconds(300)});
    }();
    EXPECT_TRUE(contains(made.why_staged, "hop 1: timed out after")) << made.why_staged;
    EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
    expect_all_right(me, made, "staged(threads)");
  });
}

TEST(MpiDevice, WrongArgumentsAreRefusedByName) {
  on_ranks(1, [](RankThread& me) {
    const auto text_of = [](const auto& body) -> std::string {
      try {
        body();
      } catch (const UsageError& error) {
        return error.what();
      }
      return "no UsageError";
    };
    const auto host = [&] { return me.host; };
    EXPECT_TRUE(contains(text_of([&] { (void)make_mpi_device({}, me.stream); }), "make_host is empty"));
    EXPECT_TRUE(contains(text_of([&] { (void)make_mpi_device(host, nullptr); }), "stream is null"));
    EXPECT_TRUE(contains(
        text_of([&] { (void)make_mpi_device(host, me.stream, {.patience = milliseconds(0)}); }), "0 ms"));
    EXPECT_TRUE(contains(text_of([&] { (void)make_mpi_device([] { return nullptr; }, me.stream); }),
                         "made no communicator"));
    EXPECT_TRUE(contains(text_of([&] { (void)make_mpi_device(host, me.stream, {.staged = {.buffers = 1}}); }),
                         "buffers is 1"));
  });
}

// The device never comes to the shift, which is not the peers' fault.
TEST(MpiDevice, ADeviceThatStandsStillIsNamed) {
  const Hosts hosts;
  on_ranks(2, [&](RankThread& me) {
    const MpiDevice made = make_mpi_device(hosts.factory(me), me.stream, {.claimed = true});
    const DeviceBlock mine(1000), got(1000);
    write_zero(me.stream, mine.bytes());
    const auto shift = made.comm->shift(4, mine.bytes(), got.bytes());
    const std::string text = comm_error_of([&] { shift->wait(Clock::now() - milliseconds(1)); });
    EXPECT_TRUE(contains(text, "rank " + std::to_string(me.rank) + ", hop 4: timed out after")) << text;
    EXPECT_TRUE(contains(comm_error_of([&] { (void)made.comm->shift(5, {}, {}); }), "failed before"));
    cudaStreamSynchronize(me.stream);
    me.meet();
  });
}

}  // namespace
}  // namespace ringattn::test
