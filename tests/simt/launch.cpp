#include <simt_launch.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

using Blocks = std::vector<std::unique_ptr<Block>>;
std::unique_ptr<Block> take(Blocks& blocks, std::size_t i) {
  std::unique_ptr<Block> block = std::move(blocks[i]);
  blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
  return block;
}

// Of the blocks at work the one of number `first`, or else the next one that can do a step. What has ended
// becomes idle, by a fault, too.
Block::Progress go_on_with_one(Blocks& at_work, Blocks& idle, std::size_t first, unsigned steps) {
  for (std::size_t i = 0; i < at_work.size(); ++i) {
    const std::size_t which = (first + i) % at_work.size();
    Block::Progress progress{};
    try {
      progress = at_work[which]->go_on(steps);
    } catch (...) {
      idle.push_back(take(at_work, which));
      throw;
    }
    if (progress == Block::Progress::stuck) continue;
    if (progress == Block::Progress::done) idle.push_back(take(at_work, which));
    return progress;
  }
  return Block::Progress::stuck;
}

// Whether the OS threads that share a launch may hope for one another. Once each of them has looked at its
// own blocks in vain since anybody last did a step, nobody ever will: a step that was not reported yet
// belongs to somebody who has not looked in vain.
class Waiting {
 public:
  explicit Waiting(unsigned workers) : workers_(workers) {}

  // How many steps were reported before this look.
  std::uint64_t look() {
    std::lock_guard lock(mutex_);
    return steps_;
  }
  void progressed() {
    std::lock_guard lock(mutex_);
    ++steps_;
    in_vain_ = 0;
  }
  // False: nobody will ever go on. `last` is the worker's own: the look before this one that was in vain.
  bool may_go_on(std::uint64_t looked_at, std::optional<std::uint64_t>& last) {
    std::lock_guard lock(mutex_);
    if (looked_at == steps_ && last != steps_) ++in_vain_;
    if (looked_at == steps_) last = steps_;
    return in_vain_ < workers_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    --workers_;
  }

 private:
  std::mutex mutex_;
  unsigned workers_, in_vain_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace

void run_grid(dim3 grid, dim3 dim, std::size_t shared_bytes, const std::function<void()>& kernel) {
  const std::uint64_t launch_seed = config().seed * 1000003 + ++launches;
  const unsigned blocks = grid.x * grid.y * grid.z;
  std::vector<unsigned> order(blocks);
  for (unsigned i = 0; i < blocks; ++i) order[i] = i;
  Random random(launch_seed);
  for (unsigned i = blocks; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);

  const unsigned workers = std::max(1u, std::min(config().workers, blocks));
  const unsigned resident = 1 + random.below(std::max(config().resident, 1u));
  const unsigned steps = std::array<unsigned, 3>{20, 400, 10000}[random.below(3)];

  LaunchOrder launch_order;
  Waiting waiting(workers);
  std::atomic<unsigned> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  auto work = [&, stream = acting](unsigned worker) {
    const ActingAs same(stream);  // for the helpers; the caller is it already
    // They keep their fibers from launch to launch.
    static thread_local std::vector<std::unique_ptr<Block>> idle;
    std::vector<std::unique_ptr<Block>> at_work;
    Random dice(launch_seed * 31 + worker);
    std::optional<std::uint64_t> in_vain;
    try {
      for (;;) {
        for (unsigned i; at_work.size() < resident && (i = next++) < blocks;) {
          at_work.push_back(idle.empty() ? std::make_unique<Block>() : take(idle, idle.size() - 1));
          const unsigned b = order[i];
          Block& block = *at_work.back();
          block.grid = grid;
          block.dim = dim;
          block.index = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
          block.begin(kernel, shared_bytes, launch_seed * 7919 + b, &launch_order);
        }
        if (at_work.empty()) break;
        const unsigned first = dice.below(static_cast<unsigned>(at_work.size()));
        const std::uint64_t looked_at = waiting.look();
        if (go_on_with_one(at_work, idle, first, 1 + dice.below(steps)) != Block::Progress::stuck) {
          waiting.progressed();
        } else if (waiting.may_go_on(looked_at, in_vain)) {
          std::this_thread::yield();
        } else {
          throw Fault(FaultKind::deadlock, at_work[first]->deadlock_report());
        }
      }
    } catch (...) {
      for (const auto& block : at_work) block->give_up();
      std::move(at_work.begin(), at_work.end(), std::back_inserter(idle));
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next = blocks;
    }
    waiting.leave();
  };
  std::vector<std::thread> helpers;
  for (unsigned w = 1; w < workers; ++w) helpers.emplace_back(work, w);
  work(0);
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
