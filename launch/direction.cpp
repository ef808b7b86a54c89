#include "launch/direction.h"

#include "kernels/cpu/cpu.h"

namespace ringattn::launch {

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

Traffic traffic_of(const Problem& problem, const Plan& plan, Direction direction) {
  const HeadShape heads = problem.heads();
  const auto block = [&](index_t rows) {
    return static_cast<std::uint64_t>(cpu_block_bytes(heads, problem.dtype, rows));
  };
  const auto gradient = [&](index_t rows) {
    return static_cast<std::uint64_t>(cpu_gradient_bytes(heads, rows));
  };
  Traffic sum;
  const auto add = [&](const Traffic& pass) {
    sum.bytes_sent += pass.bytes_sent;
    sum.messages_sent += pass.messages_sent;
  };
  if (direction != Direction::backward) add(forward_traffic(plan, block));
  if (direction != Direction::forward) add(backward_traffic(plan, block, gradient));
  return sum;
}

}  // namespace ringattn::launch
