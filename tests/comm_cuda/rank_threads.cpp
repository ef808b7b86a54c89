#include "tests/comm_cuda/rank_threads.h"

#include "comm/threads.h"
#include "tests/simt/run_kernel.h"
#include "tests/simt/stream.h"

namespace ringattn::test {

namespace {

std::vector<std::shared_ptr<Communicator>> threads(int size) {
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (auto& one : make_thread_communicators(size)) communicators.push_back(std::move(one));
  return communicators;
}

}  // namespace

void RankThread::meet() const { (void)aside->all_gather({}, Clock::now() + std::chrono::seconds(30)); }

void on_ranks(int size, const std::function<void(RankThread&)>& body, Devices devices) {
  const auto hosts = threads(size), asides = threads(size);
  simt::System::get().run_ranks(size, [&](int rank) {
    cudaSetDevice(devices == Devices::own ? rank : 0);
    const simt::StreamOwner stream;
    const auto r = static_cast<std::size_t>(rank);
    RankThread me{.rank = rank, .size = size, .host = hosts[r], .aside = asides[r], .stream = stream};
    try {
      body(me);
    } catch (const std::exception& error) {
      for (Communicator* comm : {me.host.get(), me.aside.get()})
        comm->abort(1, "rank " + std::to_string(rank) + " failed: " + error.what());
      throw;
    }
  });
}

}  // namespace ringattn::test
