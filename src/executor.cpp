#include "src/executor.h"

#include <algorithm>
#include <array>

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

// A transfer that may be running or not there at all.
class Transfer {
 public:
  Transfer() = default;
  Transfer(std::unique_ptr<Shift> shift, std::chrono::milliseconds patience)
      : shift_(std::move(shift)), patience_(patience), deadline_(Clock::now() + patience) {}

  void test() const {
    if (shift_) shift_->test();
  }
  // Bytes that may be touched. A kernel that cannot go on without more asks again and again, so the deadline
  // holds here, too: a transfer that has stood still for so long is not coming.
  std::size_t arrived() {
    const bool done = shift_->test();
    const std::size_t now = shift_->arrived();
    if (now > arrived_) deadline_ = Clock::now() + patience_;
    arrived_ = now;
    if (!done && Clock::now() >= deadline_) shift_->wait(deadline_);
    return shift_->arrived();
  }
  void wait() {
    if (shift_) shift_->wait(Clock::now() + patience_);
    shift_.reset();
  }
  explicit operator bool() const { return shift_ != nullptr; }

 private:
  std::unique_ptr<Shift> shift_;
  std::chrono::milliseconds patience_{};
  Deadline deadline_{};
  std::size_t arrived_ = 0;
};

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
void run_forward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots, const TensorView& out,
                 const LseView& lse, Mode mode, std::chrono::milliseconds patience, Timing& timing) {
  const auto& hops = plan.hops();
  const auto block_at = [&](std::size_t s) {
    return slots.block[s % 2].bytes().first(kernel.block_bytes(hops[s].k_rows));
  };
  timing.hops.assign(hops.size(), {});
  bool written = false;
  for (std::size_t s = 0; s < hops.size(); ++s) {
    Stopwatch watch;
    Transfer blocks;
    if (s + 1 < hops.size() && mode != Mode::compute_only)
      blocks = {comm.shift(static_cast<int>(s), block_at(s), block_at(s + 1)), patience};
    if (mode == Mode::blocking) blocks.wait();
    timing.hops[s].wait = watch.lap();

    if (mode != Mode::comm_only && hops[s].tile_count > 0) {
      const auto poll = blocks ? Poll([&] { blocks.test(); }) : Poll();
      // Nothing that could still fail comes after the last hop.
      written = s + 1 == hops.size();
      if (written)
        kernel.attend_last(plan.tiles(s), block_at(s), hops[s].k_rows, out, lse, poll);
      else
        kernel.attend(plan.tiles(s), block_at(s), hops[s].k_rows, poll);
    }
    timing.hops[s].compute = watch.lap();

    blocks.wait();
    timing.hops[s].wait += watch.lap();
  }
  Stopwatch watch;
  if (mode != Mode::comm_only && !written) kernel.finish(out, lse);
  timing.finish = watch.lap();
}

// The turns deal with hops 1, 2, .. and after the last one with hop 0. Rank 0 of four ranks:
//   turn            0       1          2             3             4
//   block at hand   (own)   3          2             1             own
//   K, V sent       own     3          2             -             -
//   dK, dV sent     -       -          of 3, to 1    of 2, to 1    of 1, home
//   dK, dV taken    -       -          of 2          of 1          of own
// A block's dK and dV come from the previous rank just when it is at hand, and the kernel adds to what has
// arrived. Since the own block comes last, its sum needs no place besides the two slots; it ends in slot 0,
// which is the only one where there is one hop.
std::span<const std::byte> run_backward(const Plan& plan, Kernel& kernel, Communicator& comm, Slots& slots,
                                        const BackwardRows& rows, Mode mode,
                                        std::chrono::milliseconds patience, Timing& timing) {
  const auto& hops = plan.hops();
  const std::size_t last = hops.size() - 1;
  const auto block_at = [&](std::size_t s) {
    return slots.block[s % 2].bytes().first(kernel.block_bytes(hops[s].k_rows));
  };
  const auto gradient_at = [&](std::size_t turn) {
    return slots.gradient[(hops.size() - turn) % 2].bytes().first(
        kernel.gradient_bytes(hops[turn % hops.size()].k_rows));
  };
  timing.hops.assign(hops.size(), {});
  for (std::size_t turn = last == 0 ? 1 : 0; turn <= hops.size(); ++turn) {
    const std::size_t s = turn % hops.size();
    const bool own = turn == hops.size();
    HopTiming& hop = timing.hops[s];
    Stopwatch watch;
    Transfer blocks, gradients;
    if (turn < last && mode != Mode::compute_only)
      blocks = {comm.shift(static_cast<int>(turn), block_at(turn), block_at(turn + 1)), patience};
    if (turn >= 2 && mode != Mode::compute_only) {
      const int home = comm.size() - static_cast<int>(last);
      gradients = {comm.shift(static_cast<int>(turn - 1), gradient_at(turn - 1), gradient_at(turn),
                              {.distance = own ? home : 1, .channel = 1}),
                   patience};
    }
    const bool computes = turn > 0 && mode != Mode::comm_only && hops[s].tile_count > 0;
    if (turn == 1 && !computes) kernel.clear_gradients(gradient_at(turn));
    if (mode == Mode::blocking) {
      blocks.wait();
      gradients.wait();
    }
    hop.wait += watch.lap();

    Poll poll;
    if (blocks || gradients) {
      poll = [&] {
        blocks.test();
        gradients.test();
      };
    }
    if (turn == 0 || last == 0) rows.load_rows(poll);
    if (own && last >= 2) rows.load_block(block_at(0));  // other blocks have been in its slot since
    timing.load += watch.lap();

    if (computes) {
      GradientBlock sums{.bytes = gradient_at(turn), .fresh = turn == 1};
      if (gradients) {
        sums.arrived = [&] {
          blocks.test();
          return gradients.arrived();
        };
      }
      kernel.attend_backward(plan.tiles(s), block_at(s), hops[s].k_rows, sums, poll);
    }
    hop.compute += watch.lap();

    blocks.wait();
    gradients.wait();
    hop.wait += watch.lap();
  }
  return gradient_at(hops.size());
}

}  // namespace ringattn
