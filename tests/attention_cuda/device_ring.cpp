#include "tests/attention_cuda/device_ring.h"

#include "comm/device_ranks.h"
#include "comm/nccl.h"
#include "comm/staged.h"

namespace ringattn::test {

std::vector<Transport> transports() {
  const auto nccl = [](RankThread& me) { return make_nccl_communicator(me.host, me.stream); };
  const auto ranks = [](RankThread& me) { return make_device_ranks(me.host, me.stream); };
  const auto staged = [](RankThread& me) { return make_staged(me.host, me.stream, {.chunk_bytes = 1000}); };
  return {{"nccl", nccl},
          {"device ranks", ranks},
          {"device ranks of one device", ranks, Devices::shared},
          {"staged", staged}};
}

RingAttention device_ring(const RankThread& me, std::shared_ptr<Communicator> comm, const Problem& problem,
                          LayoutKind layout, Mode mode) {
  return {std::move(comm), problem, Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), me.size),
          RingOptions{.threads = 1,
                      .deadline = std::chrono::seconds(30),
                      .mode = mode,
                      .backend = Backend::cuda,
                      .stream = me.stream}};
}

GradientAnswer run_device_ranks(const Transport& transport, int ranks, const Problem& problem,
                                LayoutKind layout, const Inputs& in, index_t gap, Mode mode) {
  GradientAnswer answer = empty_gradients(problem);
  const auto body = [&](RankThread& me) {
    const Sharding sharding = Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), ranks);
    const RankTensors host(problem, sharding, me.rank, in);
    const DeviceTensors device(host, gap);
    RingAttention ring = device_ring(me, transport.make(me), problem, layout, mode);
    device.forward(ring);
    device.backward(ring);
    ring.settle();
    device.download();
    host.collect(answer);
  };
  on_ranks(ranks, body, transport.devices);
  return answer;
}

}  // namespace ringattn::test
