#include "tests/ring_cuda/device_rings.h"

#include <algorithm>
#include <utility>

#include "comm/device_ranks.h"
#include "comm/mpi_device.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/ring_cuda/rank_ring.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

GradientAnswer run(const DeviceRing& ring, Pass pass, const Problem& problem, const Sharding& sharding,
                   const Inputs& in) {
  GradientAnswer answer = empty_gradients(problem);
  simt::config().seed = ring.seed;
  simt::config().devices = std::max(simt::config().devices, sharding.ranks());
  on_ranks(
      sharding.ranks(),
      [&](RankThread& me) {
        const auto comm = ring.carrier.make(me);
        RankRing rank(me, *comm, ring, problem, sharding, in);
        for (int call = 0; call < ring.calls; ++call) {
          rank.forward();
          if (pass == Pass::backward) rank.backward();
          rank.end_of_call();
        }
        rank.collect(answer);
      },
      ring.carrier.devices);
  return answer;
}

}  // namespace

std::vector<Carrier> carriers() {
  const auto ranks = [](RankThread& me) { return make_device_ranks(me.host, me.stream); };
  return {{"nccl", [](RankThread& me) { return make_nccl_communicator(me.host, me.stream); }},
          // Chunks of which a block has several, and none divides one.
          {"staged", [](RankThread& me) { return make_staged(me.host, me.stream, {.chunk_bytes = 1000}); }},
          // As MPI with support for devices; on the harness threads can carry device memory.
          {"direct",
           [](RankThread& me) {
             const auto host = make_device_memory_watch(me.host, std::make_shared<BlockCount>());
             return make_mpi_device(
                        [&, first = true]() mutable { return std::exchange(first, false) ? host : me.aside; },
                        me.stream, {.claimed = true})
                 .comm;
           }},
          {"device_ranks", ranks},
          {"one_device", ranks, Devices::shared}};
}

std::vector<std::string> chapters() { return {"auto"}; }

std::string text(const DeviceRing& ring) {
  return ring.carrier.name + ", " + std::string(name_of(ring.mode)) + ", seed " + std::to_string(ring.seed) +
         ", " + ring.chapter;
}

Answer run_ring(const DeviceRing& ring, const Problem& problem, const Sharding& sharding, const Inputs& in) {
  return run(ring, Pass::forward, problem, sharding, in).forward;
}

GradientAnswer run_ring_gradients(const DeviceRing& ring, const Problem& problem, const Sharding& sharding,
                                  const Inputs& in) {
  return run(ring, Pass::backward, problem, sharding, in);
}

}  // namespace ringattn::test
