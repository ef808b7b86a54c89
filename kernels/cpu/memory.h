// Sizes that cannot wrap, and memory that is aligned, zeroed and spread over the threads that will use it.
#pragma once
#include <cstddef>
#include <initializer_list>

#include "kernels/kernel.h"

namespace ringattn::cpu {

constexpr index_t round_up(index_t n, index_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// All throw OutOfMemory if the result does not fit 63 bits. Arguments are not negative.
index_t checked_product(std::initializer_list<index_t> factors);
index_t checked_sum(index_t a, index_t b);
index_t checked_round_up(index_t n, index_t multiple);

// 64-byte aligned (2 MiB and huge pages if it is large), first touched and zeroed by `threads` threads.
// Throws OutOfMemory naming the size. 0 bytes give an empty buffer.
Buffer allocate_zeroed(std::size_t bytes, int threads);

}  // namespace ringattn::cpu
