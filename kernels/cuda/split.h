// Few queries against many keys: where the groups of a walk are fewer than the blocks of threads that the
// device works on at once, their columns are split. Each part has a block of threads and a state of its own,
// and one small kernel merges the states of a row, first part first. The number of parts depends on the tiles
// and the device alone, and so do the bits. The parts are the chapter's own: from about 150 rows of all heads
// of a KV head on, products count beside the bytes of K and V, and few rows leave most of a block's
// warpgroups idle, not its copies.
#pragma once
#include <optional>

#include "kernels/cuda/schedule.h"

namespace ringattn::cuda {

// Parts begin and end at whole steps of chapters 1 and 2. Chapter 3 takes 64, 96 or 128 columns at a time,
// and the last tile of a part may be cut off: one in 512 columns or more.
inline constexpr index_t kSplitColumns = 64;

struct SplitRule {
  index_t blocks;   // of threads, at most so many after the split
  index_t columns;  // of a part, at least (the last steps of a group may be fewer)
};
// For the current device. Throws DeviceError.
SplitRule split_rule();

// The schedule with its longest groups cut into parts, which follow one another, as even as whole steps allow
// and none longer than it must be to stay within the rule; `merges` says which parts belong together. Part n
// has its rows' state from row n * state_rows of a head on. A group has `blocks_a_group` blocks of threads.
// Empty where no group would be cut.
// Example: 3 groups of 12, 12 and 5 steps, 1 block each, 7 blocks: parts of at most 5 steps, which are
// 4 + 4 + 4, 4 + 4 + 4 and 5.
std::optional<Schedule> split(const Schedule& schedule, index_t blocks_a_group, index_t state_rows,
                              const SplitRule& rule);

}  // namespace ringattn::cuda
