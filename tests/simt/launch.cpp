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
#include "tests/simt/memory.h"

namespace simt {
namespace {

std::atomic<std::uint64_t> launches{0};
std::mutex opt_in_mutex;
std::map<const void*, std::size_t> opt_in_bytes;  // cudaFuncSetAttribute

constexpr std::size_t kDefaultSharedLimit = 48 * 1024;

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
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  const bool grid_fits =
      grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x < 1u << 31 && grid.y < 1u << 16 && grid.z < 1u << 16;
  if (threads == 0 || threads > 1024 || block.z > 64 || !grid_fits) {
    noted(cudaErrorInvalidConfiguration);
    return;
  }
  {
    std::lock_guard lock(opt_in_mutex);
    const auto it = opt_in_bytes.find(function);
    if (shared_bytes > (it == opt_in_bytes.end() ? kDefaultSharedLimit : it->second)) {
      noted(cudaErrorInvalidValue);
      return;
    }
  }
  System::get().push(real(stream), {"kernel", {}, [=, kernel = std::move(kernel)] {
                                      run_grid(grid, block, shared_bytes, kernel);
                                    }});
}

}  // namespace simt

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute, int value) {
  const int largest = (simt::config().compute_capability >= 90 ? 227 : 163) * 1024;
  if (value < 0 || value > largest) return simt::noted(cudaErrorInvalidValue);
  std::lock_guard lock(simt::opt_in_mutex);
  simt::opt_in_bytes[function] = static_cast<std::size_t>(value);
  return cudaSuccess;
}
