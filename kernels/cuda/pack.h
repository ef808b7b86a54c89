// Grouped queries: heads that read the same keys and values share a block of threads of attend, where that
// leaves fewer rows of blocks empty. The one rule, for all chapters that can pack.
#pragma once
#include <algorithm>

#include "src/types.h"

namespace ringattn::cuda {

// Of a block of threads: so many heads, so many queries of each. `heads` may be more than there are.
struct Pack {
  int heads, rows;
};

// Whether a chapter finds its rows' heads by shifts.
enum class HeadCounts { all, powers_of_two };

// Every block reads and multiplies all tiles of keys that its rows see, however many rows it has. Unpacked,
// the last of a head's ceil(q_rows / block_rows) blocks may be nearly empty. So the pack is the one that
// takes the fewest blocks for the `group` heads of a KV head, and of several such the one of the fewest
// heads; but a single head, unless an eighth of the blocks is saved. From 8 blocks a head on it cannot be.
// Example: 128 rows a block, 8 heads of 37 queries, 296 rows: unpacked 8 blocks, by 3 heads of 42 rows 3.
// No more rows than queries, where any number will do: warpgroups that are left without rows need not work.
inline Pack pack_of(index_t q_rows, index_t group, int block_rows, HeadCounts counts) {
  constexpr index_t kPart = 8;
  const index_t queries = std::max<index_t>(q_rows, 1);
  const auto quotient_up = [](index_t a, index_t b) { return (a + b - 1) / b; };
  const auto blocks = [&](index_t heads) {
    return quotient_up(queries, block_rows / heads) * quotient_up(group, heads);
  };
  index_t best = 1;
  if (quotient_up(queries, block_rows) < kPart) {
    const bool powers = counts == HeadCounts::powers_of_two;
    // The first power of two from `group` on has room for all; heads beyond it would not be there.
    for (index_t heads = 2; heads <= block_rows && (powers ? heads < 2 * group : heads <= group);
         heads = powers ? 2 * heads : heads + 1)
      if (kPart * blocks(heads) <= (kPart - 1) * blocks(1) && blocks(heads) < blocks(best)) best = heads;
  }
  const auto rows = static_cast<index_t>(block_rows / best);
  return {static_cast<int>(best),
          static_cast<int>(counts == HeadCounts::powers_of_two ? rows : std::min(rows, queries))};
}

}  // namespace ringattn::cuda
