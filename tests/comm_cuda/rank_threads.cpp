#include "tests/comm_cuda/rank_threads.h"

#include "comm/threads.h"
#include "tests/simt/run_kernel.h"
#include "tests/simt/stream.h"

namespace ringattn::test {

void on_ranks(int size, const std::function<void(RankThread&)>& body, Devices devices) {
  std::vector<std::shared_ptr<Communicator>> hosts;
  for (auto& host : make_thread_communicators(size)) hosts.push_back(std::move(host));
  simt::System::get().run_ranks(size, [&](int rank) {
    cudaSetDevice(devices == Devices::own ? rank : 0);
    const simt::StreamOwner stream;
    RankThread me{
        .rank = rank, .size = size, .host = hosts[static_cast<std::size_t>(rank)], .stream = stream};
    try {
      body(me);
    } catch (const std::exception& error) {
      me.host->abort(1, "rank " + std::to_string(rank) + " failed: " + error.what());
      throw;
    }
  });
}

}  // namespace ringattn::test
