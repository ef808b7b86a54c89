// Sizes that cannot wrap, and memory that is aligned, zeroed and spread over the threads that will use it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "kernels/kernel.h"

namespace ringattn::cpu {

constexpr index_t round_up(index_t n, index_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// All throw OutOfMemory if the result does not fit 63 bits. Arguments are not negative.
index_t checked_product(std::initializer_list<index_t> factors);
index_t checked_sum(index_t a, index_t b);
index_t checked_round_up(index_t n, index_t multiple);

// Memory is dealt to the threads of a team in turn, in parts of a huge page.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Calls action(first, count) for the parts of `bytes` that belong to `thread`.
template <class Action>
void for_own_parts(std::size_t bytes, int thread, int team, const Action& action) noexcept {
  const std::size_t step = static_cast<std::size_t>(team) * kHugePage;
  for (std::size_t first = static_cast<std::size_t>(thread) * kHugePage; first < bytes; first += step)
    action(first, std::min(kHugePage, bytes - first));
}

// Whether so many bytes, written one after the other, have left the caches by the time they are read. They
// are then written past them ("streamed"), which saves fetching each line before it is overwritten: a third
// of the traffic of packing. Measured for blocks of 4 MiB and more, where it costs nothing even if they stay.
constexpr bool outgrows_caches(std::size_t bytes) { return bytes >= std::size_t{4} << 20; }

// 64-byte aligned (2 MiB and huge pages if it is large), zeroed, each part first touched by the thread of a
// team of `threads` that it belongs to. The kernel's tasks go to whichever thread is free, so memory that all
// of them use is best spread over all memory nodes: one busy node would serve everybody. Throws OutOfMemory
// naming the size. 0 bytes give an empty buffer.
Buffer allocate_zeroed(std::size_t bytes, int threads);

}  // namespace ringattn::cpu
