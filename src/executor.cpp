#include "src/executor.h"

#include "src/error.h"

namespace ringattn {
namespace {

class Stopwatch {
 public:
  // Seconds since construction or the last lap.
  double lap() {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - start_).count();
    start_ = now;
    return seconds;
  }

 private:
  Clock::time_point start_ = Clock::now();
};

constexpr std::array<std::string_view, 4> kModeNames{"overlap", "blocking", "compute-only", "comm-only"};

}  // namespace

std::string_view name_of(Mode mode) { return kModeNames[static_cast<std::size_t>(mode)]; }

Mode mode_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kModeNames.size(); ++i)
    if (kModeNames[i] == name) return static_cast<Mode>(i);
  throw UsageError("mode is '" + std::string(name) +
                   "', allowed are overlap, blocking, compute-only, comm-only");
}

double Timing::compute() const {
  double sum = 0;
  for (const HopTiming& hop : hops) sum += hop.compute;
  return sum;
}

double Timing::wait() const {
  double sum = 0;
  for (const HopTiming& hop : hops) sum += hop.wait;
  return sum;
}

// At hop s slot s mod 2 holds the block at hand and is being sent on, while the other slot takes the next
// block from the previous rank. After the last hop nothing is sent: nobody needs the blocks that are left.
void run_forward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots, Mode mode,
                 std::chrono::milliseconds patience, Timing& timing) {
  const auto& hops = plan.hops();
  const auto block_at = [&](std::size_t s) {
    return slots.block[s % 2].bytes().first(kernel.block_bytes(hops[s].k_rows));
  };
  timing.hops.assign(hops.size(), {});
  for (std::size_t s = 0; s < hops.size(); ++s) {
    Stopwatch watch;
    const auto block = block_at(s);
    std::unique_ptr<Shift> transfer;
    if (s + 1 < hops.size() && mode != Mode::compute_only)
      transfer = comm.shift(static_cast<int>(s), block, block_at(s + 1));
    if (transfer && mode == Mode::blocking) {
      transfer->wait(Clock::now() + patience);
      transfer.reset();
    }
    timing.hops[s].wait = watch.lap();

    if (mode != Mode::comm_only && hops[s].tile_count > 0) {
      const auto poll = transfer ? Poll([&] { transfer->test(); }) : Poll();
      kernel.attend(plan.tiles(s), block, hops[s].k_rows, poll);
    }
    timing.hops[s].compute = watch.lap();

    if (transfer) transfer->wait(Clock::now() + patience);
    timing.hops[s].wait += watch.lap();
  }
}

}  // namespace ringattn
