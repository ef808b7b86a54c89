// What ranks hear when a peer stalls or dies, when NCCL fails, and that their streams are free afterwards.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/last_words.h"
#include "comm/nccl.h"
#include "src/error.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/simt/nccl.h"
#include "tests/simt/stream.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

Deadline in(int ms) { return Clock::now() + milliseconds(ms); }

// Ending does not wait long for peers that will not come.
std::unique_ptr<DeviceCommunicator> impatient(RankThread& me) {
  return make_nccl_communicator(me.host, me.stream, {.patience = milliseconds(300)});
}

TEST(NcclFailures, APeerThatStallsIsNamedAtTheDeadlineOnEveryRank) {
  for (const int ranks : {2, 3, 5}) {
    on_ranks(ranks, [&](RankThread& me) {
      const auto comm = impatient(me);
      const DeviceBlock mine(7000), got(7000);
      write_zero(me.stream, mine.bytes());
      if (me.rank == 1) me.meet();  // comes when the others have given up
      const Deadline start = Clock::now();
      // As many hops as it takes for everybody to need rank 1. Each wait returns at once.
      for (int hop = 3; hop < 3 + ranks; ++hop) comm->shift(hop, mine.bytes(), got.bytes())->wait(soon());
      const std::string text = without_time(comm_error_of([&] { comm->settle(in(150)); }));
      const auto waited = Clock::now() - start;
      const int previous = previous_rank(me.rank, ranks), next = next_rank(me.rank, ranks);
      EXPECT_TRUE(contains(text, ": timed out after T s waiting for")) << text;
      if (previous == 1 || next == 1) {
        const std::string send = "rank " + std::to_string(next) + " to take 7000 bytes (0 taken)";
        EXPECT_EQ(text, "rank " + std::to_string(me.rank) + ", hop 3: timed out after T s waiting for " +
                            "7000 bytes from rank " + std::to_string(previous) + " (0 arrived) and for " +
                            send);
      }
      EXPECT_GE(waited, milliseconds(150));
      EXPECT_LT(waited, milliseconds(1150));  // deadline + 1 s
      cudaStreamSynchronize(me.stream);       // the abort has freed it
      const std::string later = comm_error_of([&] { (void)comm->shift(40, mine.bytes(), got.bytes()); });
      EXPECT_TRUE(contains(later, "hop 40: this communicator failed before: rank")) << later;
      EXPECT_FALSE(comm_error_of([&] { comm->settle(soon()); }).empty());
      if (me.rank != 1) me.meet();
    });
  }
  EXPECT_EQ(simt::nccl_alive(), 0);
}

TEST(NcclFailures, OneDirectionIsNamedAlone) {
  on_ranks(2, [](RankThread& me) {
    const auto comm = impatient(me);
    const DeviceBlock block(10);
    write_zero(me.stream, block.bytes());
    if (me.rank == 0) {
      comm->shift(0, {}, block.bytes())->wait(soon());
      EXPECT_EQ(without_time(comm_error_of([&] { comm->settle(in(50)); })),
                "rank 0, hop 0: timed out after T s waiting for 10 bytes from rank 1 (0 arrived)");
    }
    cudaStreamSynchronize(me.stream);
    me.meet();
  });
}

TEST(NcclFailures, ADeadPeerFreesAHostThatSleepsInASynchronisation) {
  on_ranks(3, [](RankThread& me) {
    const auto comm = impatient(me);
    const DeviceBlock mine(1000), got(1000);
    if (me.rank == 2) return;                // dies before its first hop
    simt::System::get().add_host_thread(1);  // the watch of the communicator may still act
    write_zero(me.stream, mine.bytes());
    const auto shift = comm->shift(0, mine.bytes(), got.bytes());
    shift->wait(in(200));
    const Deadline start = Clock::now();
    cudaStreamSynchronize(me.stream);
    EXPECT_GE(Clock::now() - start, milliseconds(100));
    EXPECT_LT(Clock::now() - start, milliseconds(1200));
    const std::string text = comm_error_of([&] { comm->settle(soon()); });
    EXPECT_TRUE(contains(text, "hop 0: timed out after 0.")) << text;
    simt::System::get().add_host_thread(-1);
  });
  EXPECT_EQ(simt::nccl_alive(), 0);
}

TEST(NcclFailures, AnAsynchronousErrorOfNcclIsHeardInTestAndFreesTheStream) {
  on_ranks(3, [](RankThread& me) {
    const auto comm = impatient(me);
    const DeviceBlock mine(1000), got(1000);
    write_zero(me.stream, mine.bytes());
    const auto shift = comm->shift(6, mine.bytes(), got.bytes());
    simt::nccl_inject_error(ncclRemoteError);
    const std::string text = comm_error_of([&] {
      while (!shift->test()) {
      }
    });
    EXPECT_EQ(text, "rank " + std::to_string(me.rank) +
                        ", hop 6: NCCL: remote process exited or there was a network error");
    shift->arrived();  // the stream waits for what will not come, and goes on all the same
    cudaStreamSynchronize(me.stream);
    EXPECT_EQ(comm_error_of([&] { shift->wait(soon()); }), text);
    EXPECT_EQ(comm_error_of([&] { (void)comm->all_gather({}, soon()); }), text);
    me.meet();
  });
  EXPECT_EQ(simt::nccl_alive(), 0);
}

TEST(NcclFailures, WorkOnTheStreamIsNotLateness) {
  on_ranks(2, [](RankThread& me) {
    const auto comm = impatient(me);
    const DeviceBlock mine(1000), got(1000);
    Findings findings;
    write_pattern(me.stream, mine.bytes(), me.rank, 0);
    on_stream(me.stream, mine.bytes(), simt::Access::write,
              [](std::span<std::byte>) { std::this_thread::sleep_for(milliseconds(300)); });
    comm->shift(0, mine.bytes(), got.bytes())->wait(in(200));
    findings.expect_pattern(me.stream, got.bytes(), 1 - me.rank, 0);
    comm->settle(soon());
    cudaStreamSynchronize(me.stream);
    findings.report();
  });
}

TEST(NcclFailures, AShiftGivenUpTouchesNothingAnyMore) {
  on_ranks(2, [](RankThread& me) {
    const auto comm = impatient(me);
    const DeviceBlock mine(1000), got(1000);
    write_zero(me.stream, mine.bytes());
    write_zero(me.stream, got.bytes());
    if (me.rank == 0) {
      (void)comm->shift(2, mine.bytes(), got.bytes());
      const std::string text = comm_error_of([&] { comm->settle(soon()); });
      EXPECT_EQ(text, "rank 0, hop 2: the shift was given up");
      cudaStreamSynchronize(me.stream);
      Findings findings;
      findings.expect_all(me.stream, got.bytes(), std::byte{0});
      cudaStreamSynchronize(me.stream);
      findings.report();
    }
    cudaStreamSynchronize(me.stream);
    me.meet();
  });
  EXPECT_EQ(simt::nccl_alive(), 0);
}

TEST(NcclFailures, AbortIsHeardByAllThroughTheBootstrap) {
  on_ranks(3, [](RankThread& me) {
    const auto comm = impatient(me);
    if (me.rank == 0) comm->abort(4, "rank 0 has had enough");
    const std::string text = comm_error_of([&] { (void)comm->all_gather({}, soon()); });
    EXPECT_EQ(text, "rank 0 has had enough");
  });
}

// NCCL itself says nothing; the harness does.
TEST(NcclFailures, SizesThatDifferAreAFaultOfTheHarness) {
  try {
    on_ranks(2, [](RankThread& me) {
      const auto comm = impatient(me);
      const DeviceBlock mine(20), got(20);
      write_zero(me.stream, mine.bytes());
      comm->shift(0, mine.first(10), got.first(me.rank == 0 ? 10 : 11))->wait(soon());
      cudaStreamSynchronize(me.stream);
    });
    ADD_FAILURE() << "no fault";
  } catch (const simt::Fault& fault) {
    EXPECT_EQ(fault.kind, simt::FaultKind::usage);
    EXPECT_TRUE(contains(fault.what(), "ncclSend of 10 bytes from rank 0 meets ncclRecv of 11 on rank 1"))
        << fault.what();
  }
}

TEST(NcclCreation, RefusesWhatItCannotUse) {
  const auto usage_error_of = [](const auto& body) -> std::string {
    try {
      body();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no UsageError";
  };
  on_ranks(1, [&](RankThread& me) {
    EXPECT_EQ(usage_error_of([&] { (void)make_nccl_communicator(nullptr, me.stream); }),
              "make_nccl_communicator: bootstrap is null");
    EXPECT_EQ(usage_error_of([&] { (void)make_nccl_communicator(me.host, nullptr); }),
              "make_nccl_communicator: stream is null");
    EXPECT_EQ(usage_error_of(
                  [&] { (void)make_nccl_communicator(me.host, me.stream, {.patience = milliseconds(0)}); }),
              "NcclOptions: patience is 0 ms, allowed is more than 0");
    const auto comm = impatient(me);
    EXPECT_EQ(usage_error_of([&] { (void)comm->shift(-1, {}, {}); }),
              "shift: hop is -1, allowed is 0 or more");
  });
}

TEST(NcclCreation, ARankThatDoesNotComeIsMissedAtTheEndOfThePatience) {
  on_ranks(2, [](RankThread& me) {
    if (me.rank == 1) return;
    const std::string text = comm_error_of([&] { (void)impatient(me); });
    EXPECT_TRUE(contains(text, "rank 0: timed out after 0.3 s in all_gather")) << text;
  });
}

TEST(NcclCreation, TheCallersCommunicatorSurvives) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  on_ranks(3, [&](RankThread& me) {
    ncclComm_t original = nullptr;
    ncclCommInitRankConfig(&original, me.size, id, me.rank, nullptr);
    for (const bool fails : {false, true}) {
      const auto comm =
          make_nccl_communicator(me.host, me.stream, {.comm = original, .patience = milliseconds(300)});
      const DeviceBlock mine(500), got(500);
      Findings findings;
      write_pattern(me.stream, mine.bytes(), me.rank, 1);
      if (fails) {
        (void)comm->shift(1, mine.bytes(), got.bytes());
        EXPECT_THROW(comm->settle(soon()), CommError);
      } else {
        comm->shift(1, mine.bytes(), got.bytes())->wait(soon());
        findings.expect_pattern(me.stream, got.bytes(), previous_rank(me.rank, me.size), 1);
        comm->settle(soon());
      }
      cudaStreamSynchronize(me.stream);
      findings.report();
      me.meet();
    }
    ncclResult_t state = ncclInternalError;
    EXPECT_EQ(ncclCommGetAsyncError(original, &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    ncclCommDestroy(original);
  });
  EXPECT_EQ(simt::nccl_alive(), 0);
}

TEST(NcclCreation, RanksInAnotherOrderThanTheBootstrapAreRefusedOnEveryRank) {
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  std::atomic<int> refused = 0;
  on_ranks(3, [&](RankThread& me) {
    ncclComm_t original = nullptr;
    ncclCommInitRankConfig(&original, me.size, id, (me.rank + 1) % me.size, nullptr);
    try {
      (void)make_nccl_communicator(me.host, me.stream, {.comm = original});
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(),
                   "make_nccl_communicator: rank 0 of the bootstrap's 3 is rank 1 of 3 in options.comm");
      ++refused;
    }
    ncclCommDestroy(original);
  });
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace ringattn::test
