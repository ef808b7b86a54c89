#include "tests/ring_cuda/device_rings.h"

#include <algorithm>
#include <utility>

#include "comm/device_ranks.h"
#include "comm/mpi_device.h"
#include "comm/nccl.h"
#include "comm/staged.h"
#include "kernels/cuda/cuda.h"
#include "src/error.h"
#include "tests/comm_cuda/device_memory_only.h"
#include "tests/ring_cuda/rank_ring.h"
#include "tests/simt/config.h"
#include "tests/simt/run_kernel.h"

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
        try {
          RankRing rank(me, *comm, ring, problem, sharding, in);
          for (int call = 0; call < ring.calls; ++call) {
            rank.forward();
            if (pass == Pass::backward) rank.backward();
            rank.end_of_call();
          }
          rank.collect(answer);
        } catch (const std::exception& error) {  // nobody waits for this rank
          comm->abort(1, error.what());
          throw;
        }
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

std::vector<std::string> chapters(const Problem& problem) {
  const simt::StreamOwner stream;
  std::vector<std::string> taken;
  for (const char* const chapter : {"plain", "sm_80", "sm_90a"}) {
    try {
      (void)make_cuda_kernel({.shape = problem.heads(),
                              .dtype = problem.dtype,
                              .softmax_scale = problem.scale(),
                              .q_rows = 1,
                              .isa = chapter},
                             stream);
      taken.emplace_back(chapter);
    } catch (const UsageError&) {
    } catch (const DeviceError&) {
    }
  }
  cudaStreamSynchronize(stream);
  return taken;
}

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
