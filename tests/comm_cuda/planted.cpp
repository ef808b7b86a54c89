// Runs a ring over sources with a planted fault, and says whether the harness finds it in every seed:
//   planted CARRIER EXPECTED, where EXPECTED is the kind of fault, "wrong bytes", or "nothing" for the
//   sources as they are. Carriers are nccl, staged, direct, device_ranks, and
// - nccl_early: blocks go back while all work is still queued,
// - nccl_refusing: NCCL registers no memory of rank 1,
// - device_ranks_apart: no device may touch another one's memory.
#include <array>
#include <cstdio>
#include <string>

#include "comm/device_ranks.h"
#include "comm/last_words.h"
#include "comm/mpi_device.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/comm_cuda/rank_threads.h"
#include "tests/comm_cuda/stream_work.h"
#include "tests/simt/config.h"
#include "tests/simt/nccl.h"

namespace ringattn::test {
namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kSeeds = 10;

std::unique_ptr<DeviceCommunicator> make(const std::string& carrier, RankThread& me) {
  using std::chrono::milliseconds;
  if (carrier == "nccl_refusing" && me.rank == 1) simt::nccl_refuse(simt::NcclRefusal::no_handle);
  if (carrier.starts_with("nccl"))
    return make_nccl_communicator(me.host, me.stream,
                                  {.patience = milliseconds(carrier == "nccl_early" ? 30'000 : 50)});
  if (carrier == "staged") return make_staged(me.host, me.stream, {.chunk_bytes = 500});
  if (carrier == "direct") {
    const auto host = make_device_memory_watch(me.host, std::make_shared<BlockCount>());
    return make_mpi_device([&, calls = 0]() mutable { return calls++ == 0 ? host : me.aside; }, me.stream,
                           {.claimed = true})
        .comm;
  }
  return make_device_ranks(me.host, me.stream);
}

// The slots of forward: each hop's block is read while it travels on, and overwritten two hops later. Rank
// 0's block is empty: whoever passes it on receives and sends nothing.
bool turn(const RankThread& me, DeviceCommunicator& comm, bool gives_back_early) {
  const Deadline soon = Clock::now() + std::chrono::seconds(2);
  const std::array<DeviceBlock, 2> other = {DeviceBlock(2000), DeviceBlock(2000)};
  auto registered = comm.block_memory(2, 2000, soon);
  const auto slot = [&](std::size_t hop, std::size_t bytes) {
    return registered.empty() ? other[hop % 2].first(bytes) : std::span(registered[hop % 2].get(), bytes);
  };
  Findings findings;
  for (int call = 0; call < 3; ++call) {
    const auto bytes_of = [call](int owner) { return std::size_t{owner == 0 && call < 2 ? 0u : 2000u}; };
    write_pattern(me.stream, slot(0, bytes_of(me.rank)), me.rank, call);
    for (std::size_t hop = 0; hop < 4; ++hop) {
      const int h = static_cast<int>(hop);
      const int owner = rank_at(me.rank, -h, me.size), coming = rank_at(me.rank, -h - 1, me.size);
      const auto now = slot(hop, bytes_of(owner));
      const auto next = slot(hop + 1, bytes_of(coming));
      const auto shift = comm.shift(h, now, next);
      findings.expect_pattern(me.stream, now, owner, call);
      shift->wait(soon);
      findings.expect_pattern(me.stream, next, coming, call);
    }
  }
  if (gives_back_early) registered.clear();
  cudaStreamSynchronize(me.stream);  // in here a deadlock of streams is seen
  comm.settle(soon);
  return findings.all_well();
}

std::string outcome(const std::string& carrier) {
  std::array<bool, kRanks> well{};
  try {
    on_ranks(kRanks, [&](RankThread& me) {
      const auto comm = make(carrier, me);
      try {
        well[static_cast<std::size_t>(me.rank)] = turn(me, *comm, carrier == "nccl_early");
      } catch (const std::exception& error) {  // nobody waits for this rank
        comm->abort(1, error.what());
        throw;
      }
    });
  } catch (const simt::Fault& fault) {
    return simt::name(fault.kind);
  } catch (const std::exception& error) {
    return error.what();
  }
  return well == std::array{true, true, true} ? "nothing" : "wrong bytes";
}

}  // namespace
}  // namespace ringattn::test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  simt::config().peer_access = argv[1] != std::string("device_ranks_apart");
  int missed = 0;
  for (std::uint64_t seed = 1; seed <= ringattn::test::kSeeds; ++seed) {
    simt::config().seed = seed;
    const std::string found = ringattn::test::outcome(argv[1]);
    std::printf("seed %d: %s\n", static_cast<int>(seed), found.c_str());
    const bool expected = found == argv[2] || (argv[2] == std::string("something") && found != "nothing");
    missed += expected ? 0 : 1;
  }
  std::printf("%d of %d seeds without '%s'\n", missed, static_cast<int>(ringattn::test::kSeeds), argv[2]);
  return missed == 0 ? 0 : 1;
}
