// Blocks in memory that NCCL has registered: once, on all ranks or on none, and back before the memory goes.
#include <gtest/gtest.h>

#include "comm/last_words.h"
#include "comm/nccl.h"
#include "src/error.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/simt/config.h"
#include "tests/simt/memory.h"
#include "tests/simt/nccl.h"
#include "tests/simt/run_kernel.h"

namespace ringattn::test {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBytes = 2003;

std::span<std::byte> bytes_of(const BlockMemory& memory, std::size_t bytes = kBytes) {
  return {memory.get(), bytes};
}

// A block of every rank goes all the way round in two slots.
void turn(const RankThread& me, DeviceCommunicator& comm, const std::vector<BlockMemory>& slots, int call,
          Findings& findings) {
  write_pattern(me.stream, bytes_of(slots[0]), me.rank, call);
  for (int hop = 0; hop < me.size; ++hop) {
    const auto now = bytes_of(slots[static_cast<std::size_t>(hop % 2)]);
    const auto next = bytes_of(slots[static_cast<std::size_t>((hop + 1) % 2)]);
    comm.shift(hop, now, next)->wait(soon());
    findings.expect_pattern(me.stream, next, rank_at(me.rank, -hop - 1, me.size), call);
  }
}

// Whatever a test here does, in the end nothing is registered and no communicator is left.
class NcclMemory : public testing::Test {
 protected:
  ~NcclMemory() override {
    simt::nccl_version = NCCL_VERSION_CODE;
    EXPECT_EQ(simt::nccl_counts().registered, 0);
    EXPECT_EQ(simt::nccl_alive(), 0);
  }
  int registrations() const { return simt::nccl_counts().registrations - before_.registrations; }
  int messages() const { return simt::nccl_counts().messages - before_.messages; }
  int zero_copy() const { return simt::nccl_counts().zero_copy - before_.zero_copy; }

 private:
  simt::NcclCounts before_ = simt::nccl_counts();
};

TEST_F(NcclMemory, IsRegisteredOnceHoweverOftenItTravels) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    simt::config().seed = seed;
    on_ranks(3, [&](RankThread& me) {
      const auto comm = make_nccl_communicator(me.host, me.stream);
      const auto slots = comm->block_memory(2, kBytes, soon());
      ASSERT_EQ(slots.size(), 2u);
      Findings findings;
      for (const BlockMemory& slot : slots) findings.expect_all(me.stream, bytes_of(slot), std::byte{0});
      for (int call = 0; call < 5; ++call) turn(me, *comm, slots, call, findings);
      comm->settle(soon());
      cudaStreamSynchronize(me.stream);
      findings.report();
    });
  }
  EXPECT_EQ(registrations(), 3 * 3 * 2);  // seeds, ranks, slots
  EXPECT_EQ(messages(), 3 * 3 * 5 * 3);   // seeds, ranks, calls, hops
  EXPECT_EQ(zero_copy(), messages());
}

TEST_F(NcclMemory, OfOneRankIsAsGood) {
  on_ranks(1, [&](RankThread& me) {
    const auto comm = make_nccl_communicator(me.host, me.stream);
    EXPECT_EQ(comm->block_memory(1, 1, soon()).size(), 1u);
    EXPECT_TRUE(comm->block_memory(0, kBytes, soon()).empty());
  });
  EXPECT_EQ(registrations(), 1);
}

TEST_F(NcclMemory, GoesBackWhileItsTransfersAreStillQueued) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u}) {
    simt::config().seed = seed;
    on_ranks(3, [&](RankThread& me) {
      const auto comm = make_nccl_communicator(me.host, me.stream);
      Findings findings;
      for (int object = 0; object < 3; ++object) {
        const auto slots = comm->block_memory(2, kBytes, soon());
        turn(me, *comm, slots, object, findings);
      }
      cudaStreamSynchronize(me.stream);
      findings.report();
    });
  }
}

TEST_F(NcclMemory, OutlivesTheCommunicatorThatGaveIt) {
  on_ranks(2, [&](RankThread& me) {
    auto comm = make_nccl_communicator(me.host, me.stream);
    const auto slots = comm->block_memory(2, kBytes, soon());
    Findings findings;
    turn(me, *comm, slots, 0, findings);
    comm.reset();
    findings.expect_pattern(me.stream, bytes_of(slots[0]), me.rank, 0);
    cudaStreamSynchronize(me.stream);
    findings.report();
  });
}

TEST_F(NcclMemory, IsThereForAllRanksOrForNone) {
  using enum simt::NcclRefusal;
  for (const simt::NcclRefusal refusal : {error, no_handle, no_memory}) {
    for (const int refused : {0, 1, 2}) {
      on_ranks(3, [&](RankThread& me) {
        const auto comm = make_nccl_communicator(me.host, me.stream);
        if (me.rank == refused) simt::nccl_refuse(refusal);
        EXPECT_TRUE(comm->block_memory(2, kBytes, soon()).empty());
        simt::nccl_refuse(none);
        // Other memory travels as ever, and the next to ask may have better luck.
        const DeviceBlock mine(kBytes), got(kBytes);
        Findings findings;
        write_pattern(me.stream, mine.bytes(), me.rank, 7);
        comm->shift(0, mine.bytes(), got.bytes())->wait(soon());
        findings.expect_pattern(me.stream, got.bytes(), previous_rank(me.rank, 3), 7);
        comm->settle(soon());
        cudaStreamSynchronize(me.stream);
        findings.report();
        EXPECT_EQ(comm->block_memory(2, kBytes, soon()).size(), 2u);
      });
    }
  }
  EXPECT_EQ(zero_copy(), 0);
}

// 2.18.5 knows none of the functions: a call of one would be a fault.
TEST_F(NcclMemory, IsNothingThatAnOlderNcclHas) {
  simt::nccl_version = NCCL_VERSION(2, 18, 5);
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make_nccl_communicator(me.host, me.stream);
    EXPECT_TRUE(comm->block_memory(2, kBytes, soon()).empty());
  });
  simt::nccl_version = NCCL_VERSION(2, 19, 1);
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make_nccl_communicator(me.host, me.stream);
    EXPECT_EQ(comm->block_memory(2, kBytes, soon()).size(), 2u);
  });
  EXPECT_EQ(registrations(), 2 * 2);
}

// An abort ends the registrations with the communicator, and the memory goes afterwards.
TEST_F(NcclMemory, GoesBackAfterAFailure) {
  on_ranks(3, [&](RankThread& me) {
    const auto comm = make_nccl_communicator(me.host, me.stream, {.patience = milliseconds(300)});
    const auto slots = comm->block_memory(2, kBytes, soon());
    write_zero(me.stream, bytes_of(slots[0]));
    if (me.rank == 1) return me.meet();  // never comes to its hop
    comm->shift(0, bytes_of(slots[0]), bytes_of(slots[1]))->wait(Clock::now() + milliseconds(100));
    const std::string text = comm_error_of([&] { comm->settle(Clock::now() + milliseconds(150)); });
    EXPECT_TRUE(contains(text, "hop 0: timed out")) << text;
    EXPECT_EQ(comm_error_of([&] { (void)comm->block_memory(2, kBytes, soon()); }), text);
    me.meet();
  });
}

TEST_F(NcclMemory, OfAShiftThatIsGivenUpGoesBack) {
  on_ranks(2, [&](RankThread& me) {
    const auto comm = make_nccl_communicator(me.host, me.stream, {.patience = milliseconds(300)});
    {
      const auto slots = comm->block_memory(2, kBytes, soon());
      write_zero(me.stream, bytes_of(slots[0]));
      if (me.rank == 0) (void)comm->shift(2, bytes_of(slots[0]), bytes_of(slots[1]));
    }
    me.meet();
  });
}

// ---- what the harness holds against misuse of the same functions

std::string usage_of(const std::function<void(ncclComm_t, std::byte*, void*)>& misuse) {
  try {
    on_ranks(1, [&](RankThread& me) {
      ncclUniqueId id;
      ncclGetUniqueId(&id);
      ncclComm_t comm = nullptr;
      ncclCommInitRankConfig(&comm, 1, id, 0, nullptr);
      void *memory = nullptr, *handle = nullptr;
      ncclMemAlloc(&memory, 100);
      ncclCommRegister(comm, memory, 100, &handle);
      misuse(comm, static_cast<std::byte*>(memory), handle);
      cudaStreamSynchronize(me.stream);
      ncclCommDestroy(comm);
    });
  } catch (const simt::Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

class NcclMisuse : public testing::Test {};

TEST_F(NcclMisuse, IsAFault) {
  EXPECT_EQ(usage_of([](ncclComm_t comm, std::byte* memory, void* handle) {
              EXPECT_EQ(ncclCommDeregister(comm, handle), ncclSuccess);
              EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
            }),
            "no fault");
  const std::string freed = usage_of([](ncclComm_t comm, std::byte* memory, void*) {
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidUsage);
    ncclCommAbort(comm);
    ncclMemFree(memory);
  });
  EXPECT_TRUE(contains(freed, "freed while it is registered")) << freed;
  const std::string twice = usage_of([](ncclComm_t comm, std::byte* memory, void* handle) {
    ncclCommDeregister(comm, handle);
    EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidUsage);
    ncclMemFree(memory);
  });
  EXPECT_TRUE(contains(twice, "for the second time")) << twice;
  const std::string late = usage_of([](ncclComm_t comm, std::byte* memory, void* handle) {
    ncclCommAbort(comm);
    EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidUsage);
    ncclMemFree(memory);
  });
  EXPECT_TRUE(contains(late, "after the end of its communicator")) << late;
  const std::string left = usage_of([](ncclComm_t comm, std::byte* memory, void*) {
    EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidUsage);
    ncclCommAbort(comm);
    ncclMemFree(memory);
  });
  EXPECT_TRUE(contains(left, "destroyed while memory is registered")) << left;
}

TEST_F(NcclMisuse, OfMemoryThatAStreamStillWritesIsAFault) {
  try {
    on_ranks(1, [](RankThread& me) {
      void* memory = nullptr;
      ncclMemAlloc(&memory, 100);
      cudaMemsetAsync(memory, 0, 100, me.stream);
      cudaStreamSynchronize(me.stream);
      const simt::StreamOwner other;
      cudaMemsetAsync(memory, 1, 100, other);
      cudaDeviceSynchronize();
      simt::host_clock = {};  // as if nobody had waited
      EXPECT_EQ(ncclMemFree(memory), ncclInvalidUsage);
    });
    ADD_FAILURE() << "no fault";
  } catch (const simt::Fault& fault) {
    EXPECT_EQ(fault.kind, simt::FaultKind::race) << fault.what();
  }
}

// One rank registers, the other does not: NCCL may hang.
TEST_F(NcclMisuse, OfOneEndAloneIsAFault) {
  try {
    on_ranks(2, [](RankThread& me) {
      const auto comm = make_nccl_communicator(me.host, me.stream, {.patience = milliseconds(300)});
      const auto known = comm->block_memory(2, kBytes, soon());
      const DeviceBlock other(kBytes);
      write_zero(me.stream, bytes_of(known[0]));
      comm->shift(0, bytes_of(known[0]), me.rank == 0 ? other.bytes() : bytes_of(known[1]))->wait(soon());
      comm->settle(soon());
    });
    ADD_FAILURE() << "no fault";
  } catch (const simt::Fault& fault) {
    EXPECT_TRUE(contains(fault.what(), "registered on rank")) << fault.what();
  }
}

}  // namespace
}  // namespace ringattn::test
