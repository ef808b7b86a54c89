// Turns: in which order blocks of threads add to the same rows of dq, so that sums are the same every time.
//
// A block of threads works on a group of keys and visits blocks of kTurnRows queries, to whose dq it adds.
// Groups are numbered as a schedule has them; each block of threads takes the next one when it begins. The
// visits to a block of queries are numbered by group and, within a group, in its own order: pieces from the
// last to the first, and the blocks of each from the last to the first. A visit adds when `done` of its block
// of queries is its number, and then adds 1 to it. Who waits, waits for groups that begun before it, so
// nobody waits for ever, however few blocks of threads run at once.
//
// Example: 4 groups of 64 keys under a causal mask of 256 queries. Group 0 visits the blocks 3, 2, 1, 0,
// group 1 visits 3, 2, 1, and so on. In each block that it visits, group g comes after the groups before it:
// it has turn g, which is one run {.begin = 64 g, .end = 256, .turn = g}.
#pragma once
#include <vector>

#include "kernels/cuda/schedule.h"

namespace ringattn::cuda {

inline constexpr int kTurnRows = 64;

// What Turns holds, of a key schedule. As many steps of the host as there are visits. Throws UsageError if
// the runs are more than 2^31 - 1.
struct TurnList {
  std::vector<int> first_runs;  // one more than groups
  std::vector<TurnRun> runs;
};
TurnList turns_of(const Schedule& keys, index_t q_rows);

}  // namespace ringattn::cuda
