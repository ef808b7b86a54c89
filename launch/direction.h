// What an iteration of bench or run computes: attention, its gradients, or one after the other.
#pragma once
#include <cstdint>
#include <string_view>

#include "src/attention.h"
#include "src/cost.h"

namespace ringattn::launch {

enum class Direction : std::uint8_t { forward, backward, both };

std::string_view name_of(Direction direction);  // "forward", "backward", "both"

// FLOPs of one iteration, all ranks.
double flops_of(const Problem& problem, Direction direction);
std::string_view flop_convention(Direction direction);

// Wire traffic of one rank in one iteration, over blocks of the backend's kernels.
Traffic traffic_of(const Problem& problem, const Plan& plan, Direction direction,
                   Backend backend = Backend::cpu);

// Bytes that one rank must move through its memory in one iteration at least, over the same blocks.
double bytes_of(const Problem& problem, const Plan& plan, Direction direction,
                Backend backend = Backend::cpu);
std::string_view byte_convention(Direction direction);

// What the ring has to have room for. Gradients need what forward left behind, so bench computes that first.
constexpr Pass pass_of(Direction direction) {
  return direction == Direction::forward ? Pass::forward : Pass::backward;
}

}  // namespace ringattn::launch
