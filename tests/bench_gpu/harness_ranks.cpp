#include "tests/bench_gpu/harness_ranks.h"

#include "comm/threads.h"
#include "tests/simt/stream.h"

namespace ringattn::test {

void on_harness_ranks(int size, const std::function<void(std::shared_ptr<Communicator>)>& body) {
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (auto& one : make_thread_communicators(size)) communicators.push_back(std::move(one));
  simt::System::get().run_ranks(size, [&](int rank) {
    const auto& mine = communicators[static_cast<std::size_t>(rank)];
    try {
      body(mine);
    } catch (const std::exception& error) {
      mine->abort(1, "rank " + std::to_string(rank) + " failed: " + error.what());
      throw;
    }
  });
}

}  // namespace ringattn::test
