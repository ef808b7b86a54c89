// What the reader of a hostile header must not do is ask for the memory that it promises. Linking
// largest_allocation.cpp replaces the program's operator new by one that remembers its largest request.
#pragma once
#include <cstddef>

namespace ringattn::test {

void forget_allocations();
std::size_t largest_allocation();  // in bytes, of all threads, since the last forget_allocations()

}  // namespace ringattn::test
