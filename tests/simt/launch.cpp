#include <simt_launch.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/simt/block.h"

namespace simt {
namespace {

std::atomic<std::uint64_t> launches{0};
std::mutex opt_in_mutex;
std::map<const void*, int> opt_in_bytes;  // cudaFuncSetAttribute

constexpr std::size_t kDefaultSharedLimit = 48 * 1024;
constexpr int kLargestShared = 227 * 1024;  // sm_90; sm_80 has 163 KiB

}  // namespace

void run_grid(dim3 grid, dim3 dim, std::size_t shared_bytes, const std::function<void()>& kernel) {
  const std::uint64_t launch_seed = config().seed * 1000003 + ++launches;
  const unsigned blocks = grid.x * grid.y * grid.z;
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; ++i) order[i] = i;
  Random random(launch_seed);
  for (unsigned i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);

  std::atomic<unsigned> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  auto work = [&, stream = acting] {
    const ActingAs same(stream);      // for the helpers; the caller is it already
    static thread_local Block block;  // keeps its fibers from launch to launch
    try {
      for (unsigned i; (i = next++) < blocks;) {
        const unsigned b = order[i];
        block.grid = grid;
        block.dim = dim;
        block.index = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
        block.run(kernel, shared_bytes, launch_seed * 7919 + b);
      }
    } catch (...) {
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next = blocks;
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned w = 1; w < std::min(config().workers, blocks); ++w) helpers.emplace_back(work);
  work();
  for (auto& h : helpers) h.join();
  if (error) std::rethrow_exception(error);
  check_global_guards();
}

void enqueue_kernel(const void* function, dim3 grid, dim3 block, std::size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> kernel) {
  if (!stream) throw Fault(FaultKind::usage, "launch on the null stream");
  const unsigned threads = block.x * block.y * block.z;
  if (threads == 0 || threads > 1024 || grid.x * grid.y * grid.z == 0)
    throw Fault(FaultKind::usage, "launch shape the hardware refuses");
  {
    std::lock_guard lock(opt_in_mutex);
    const auto it = opt_in_bytes.find(function);
    const std::size_t limit = it == opt_in_bytes.end() ? kDefaultSharedLimit : it->second;
    if (shared_bytes > limit)
      throw Fault(FaultKind::usage, std::to_string(shared_bytes) +
                                        " bytes of dynamic shared memory without "
                                        "cudaFuncAttributeMaxDynamicSharedMemorySize");
  }
  System::get().push(*stream, {"kernel", {}, [=, kernel = std::move(kernel)] {
                                 run_grid(grid, block, shared_bytes, kernel);
                               }});
}

}  // namespace simt

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  if (value > simt::kLargestShared) return cudaErrorInvalidValue;
  std::lock_guard lock(simt::opt_in_mutex);
  simt::opt_in_bytes[function] = value;
  return cudaSuccess;
}
