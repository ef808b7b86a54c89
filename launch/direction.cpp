#include "launch/direction.h"

#include "kernels/kernel.h"
#include "src/backend.h"

namespace ringattn::launch {
namespace {

// The wire format of a backend's kernels.
auto block_bytes_of(const Problem& problem, Backend backend) {
  const KernelConfig config{.shape = problem.heads(), .dtype = problem.dtype};
  return [=](index_t rows) { return static_cast<std::uint64_t>(block_bytes(backend, config, rows)); };
}
auto gradient_bytes_of(const Problem& problem, Backend backend) {
  const KernelConfig config{.shape = problem.heads(), .dtype = problem.dtype};
  return [=](index_t rows) { return static_cast<std::uint64_t>(gradient_bytes(backend, config, rows)); };
}

}  // namespace

std::string_view name_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "forward";
    case Direction::backward:
      return "backward";
    case Direction::both:
      return "both";
  }
  return "";
}

double flops_of(const Problem& problem, Direction direction) {
  const double forward = direction == Direction::backward ? 0 : forward_flops(problem);
  const double backward = direction == Direction::forward ? 0 : backward_flops(problem);
  return forward + backward;
}

std::string_view flop_convention(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "4 x visible pairs x head_dim per query head, forward; exact pairs";
    case Direction::backward:
      return "10 x visible pairs x head_dim per query head, backward; exact pairs";
    case Direction::both:
      return "14 x visible pairs x head_dim per query head, forward and backward; exact pairs";
  }
  return "";
}

Traffic traffic_of(const Problem& problem, const Plan& plan, Direction direction, Backend backend) {
  const auto block = block_bytes_of(problem, backend);
  const auto gradient = gradient_bytes_of(problem, backend);
  Traffic sum;
  const auto add = [&](const Traffic& pass) {
    sum.bytes_sent += pass.bytes_sent;
    sum.messages_sent += pass.messages_sent;
  };
  if (direction != Direction::backward) add(forward_traffic(plan, block));
  if (direction != Direction::forward) add(backward_traffic(plan, block, gradient));
  return sum;
}

double bytes_of(const Problem& problem, const Plan& plan, Direction direction, Backend backend) {
  const auto block = block_bytes_of(problem, backend);
  double sum = 0;
  if (direction != Direction::backward) sum += forward_bytes(problem, plan, block);
  if (direction != Direction::forward)
    sum += backward_bytes(problem, plan, block, gradient_bytes_of(problem, backend));
  return sum;
}

std::string_view byte_convention(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return "q, k, v, out and lse once; the block at hand of each hop written and read once; all ranks";
    case Direction::backward:
      return "q, k, v, out, lse and the gradients dout, dq, dk, dv once; the block at hand of each hop and "
             "its dK "
             "and dV written and read once; all ranks";
    case Direction::both:
      return "forward's q, k, v, out and lse once, backward's and the gradients dout, dq, dk, dv once; in "
             "each the "
             "block at hand of each hop written and read once, in backward its dK and dV, too; all ranks";
  }
  return "";
}

}  // namespace ringattn::launch
