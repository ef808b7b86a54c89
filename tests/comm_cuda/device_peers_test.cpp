// Devices of one process that are let touch each other's memory, where the machine has a way, and the detour
// through the host where it has none.
#include <gtest/gtest.h>

#include "comm/device_peers.h"
#include "comm/device_ranks.h"
#include "comm/last_words.h"
#include "tests/comm/ring_checks.h"
#include "tests/comm_cuda/device_checks.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/simt/config.h"
#include "tests/simt/peers.h"
#include "tests/simt/run_kernel.h"

namespace ringattn::test {
namespace {

// As in a new process, and as it was afterwards.
class DevicePeers : public testing::Test {
 protected:
  DevicePeers() { simt::forget_peers(); }
  ~DevicePeers() override { simt::config() = before_; }

 private:
  simt::Config before_ = simt::config();
};

// Of a device's pool, as the kernels have it.
class PoolBlock {
 public:
  PoolBlock(std::size_t bytes, cudaStream_t stream) : bytes_(bytes), stream_(stream) {
    cudaMallocAsync(&data_, bytes, stream);
  }
  PoolBlock(const PoolBlock&) = delete;
  PoolBlock& operator=(const PoolBlock&) = delete;
  ~PoolBlock() {
    cudaFreeAsync(data_, stream_);
    cudaStreamSynchronize(stream_);
  }
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
  cudaStream_t stream_;
};

// A block of each kind of memory to the next rank and, on the other channel, to the previous one.
void exchange(const RankThread& me, DeviceCommunicator& comm) {
  const DeviceBlock mine(1009), got(1009);
  const PoolBlock pooled(1013, me.stream), got_pooled(1013, me.stream);
  Findings findings;
  write_pattern(me.stream, mine.bytes(), me.rank, 1);
  write_pattern(me.stream, pooled.bytes(), me.rank, 2);
  const auto there = comm.shift(0, mine.bytes(), got.bytes());
  const auto back = comm.shift(0, pooled.bytes(), got_pooled.bytes(), {.distance = -1, .channel = 1});
  there->wait(soon());
  back->wait(soon());
  findings.expect_pattern(me.stream, got.bytes(), previous_rank(me.rank, me.size), 1);
  findings.expect_pattern(me.stream, got_pooled.bytes(), next_rank(me.rank, me.size), 2);
  comm.settle(soon());
  cudaStreamSynchronize(me.stream);
  findings.report();
}

void expect_exchange(int ranks, int direct, int by_the_host, Devices devices = Devices::own) {
  const simt::PeerCopies before = simt::peer_copies();
  on_ranks(
      ranks,
      [](RankThread& me) {
        const auto comm = make_device_ranks(me.host, me.stream);
        EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
        exchange(me, *comm);
      },
      devices);
  EXPECT_EQ(simt::peer_copies().direct - before.direct, direct);
  EXPECT_EQ(simt::peer_copies().by_the_host - before.by_the_host, by_the_host);
}

TEST_F(DevicePeers, CopyStraightBothWaysOnTwoAndThreeDevices) {
  for (const int ranks : {2, 3}) {
    simt::forget_peers();
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      simt::config().seed = seed;
      expect_exchange(ranks, 2 * ranks, 0);  // again and again: what is open already is no error
    }
    for (int a = 0; a < ranks; ++a)
      for (int b = 0; b < ranks; ++b)
        for (const bool pooled : {false, true})
          EXPECT_TRUE(simt::reaches(a, b, pooled)) << a << " to " << b << (pooled ? ", pooled" : "");
    EXPECT_FALSE(simt::reaches(0, ranks, false));  // of no rank
  }
}

TEST_F(DevicePeers, WithoutAWayCopyByTheHost) {
  simt::config().peer_access = false;
  for (const int ranks : {2, 3}) expect_exchange(ranks, 0, 2 * ranks);
}

TEST_F(DevicePeers, OfRanksThatShareADeviceAreNone) { expect_exchange(3, 0, 0, Devices::shared); }

// Where a pair has a way for plain memory alone, the pool's goes by the host.
TEST_F(DevicePeers, ThePoolIsOpenedOnItsOwn) {
  on_ranks(2, [](RankThread& me) {
    cudaDeviceEnablePeerAccess(1 - me.rank, 0);
    EXPECT_FALSE(simt::reaches(me.rank, 1 - me.rank, true));
    EXPECT_TRUE(open_peer_memory(1 - me.rank));  // the half that is open already does not matter
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    EXPECT_TRUE(simt::reaches(me.rank, 1 - me.rank, true));
    EXPECT_TRUE(open_peer_memory(1 - me.rank));
    EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  });
}

TEST_F(DevicePeers, ThatAreNoneAreRefusedWithoutAnError) {
  simt::config().devices = 2;
  EXPECT_FALSE(open_peer_memory(2));
  EXPECT_FALSE(open_peer_memory(-1));
  EXPECT_FALSE(open_peer_memory(0)) << "itself";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(DevicePeers, RingsOfAllKindsWithoutAWay) {
  simt::config().peer_access = false;
  for (const auto check : {check_device_sizes, check_device_turns, check_device_backward})
    on_ranks(3, [&](RankThread& me) {
      const auto comm = make_device_ranks(me.host, me.stream);
      check(me, *comm);
    });
  EXPECT_EQ(simt::peer_copies().direct, 0);
}

// ---- what the harness holds against a copy that nobody has opened the way for

simt::FaultKind fault_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const simt::Fault& fault) {
    return fault.kind;
  }
  ADD_FAILURE() << "no fault";
  return simt::FaultKind::poison;
}

TEST_F(DevicePeers, AreAFaultOfACopyThatIsNotBetweenPeers) {
  const auto copy = [](bool between_peers, bool pooled) {
    const simt::StreamOwner stream;  // of device 0
    const DeviceBlock here(64);
    cudaSetDevice(1);
    const simt::StreamOwner stream_there;
    void* there = nullptr;
    if (pooled)
      cudaMallocAsync(&there, 64, stream_there);
    else
      cudaMalloc(&there, 64);
    cudaMemsetAsync(there, 1, 64, stream_there);
    cudaStreamSynchronize(stream_there);
    cudaSetDevice(0);
    const std::shared_ptr<void> owner(there, [](void* p) { cudaFree(p); });
    if (between_peers)
      cudaMemcpyPeerAsync(here.bytes().data(), 0, there, 1, 64, stream);
    else
      cudaMemcpyAsync(here.bytes().data(), there, 64, cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
  };
  for (const bool pooled : {false, true}) {
    EXPECT_EQ(fault_of([&] { copy(false, pooled); }), simt::FaultKind::usage);
    EXPECT_NO_THROW(copy(true, pooled));
  }
  EXPECT_EQ(simt::peer_copies().by_the_host, 2);
  cudaDeviceEnablePeerAccess(1, 0);
  EXPECT_NO_THROW(copy(false, false));
  EXPECT_EQ(fault_of([&] { copy(false, true); }), simt::FaultKind::usage) << "a pool is not opened by that";
  EXPECT_TRUE(open_peer_memory(1));
  EXPECT_NO_THROW(copy(false, true));
}

}  // namespace
}  // namespace ringattn::test
