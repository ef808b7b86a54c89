// Attention of few queries (decode, tiny shards) over one block. The groups of run.h hold 48 rows in lanes,
// most of which would be padding; here the lanes are keys and columns of V, the work grows with the queries
// there are, and a block is read at the rate of memory.
#pragma once
#include <optional>
#include <vector>

#include "kernels/cpu/run.h"

namespace ringattn::cpu {

// A call in which at most so many rows see anything comes here: 48 lanes at the same speed per lane would be
// even at 48, and are ahead a little earlier (measured in bench/README.md); where lanes hold pairs of bf16,
// which are multiplied twice as fast, much earlier. It depends on rows, tiles, dtype and instruction set
// alone, because the two ways differ in the last bits.
inline constexpr index_t kFewRows = 36, kFewPairRows = 20;
index_t few_limit(const Target& target, DType dtype);

// A row that sees something, and the keys that it sees, ascending; neighbouring ranges are one.
struct FewKeys {
  index_t group = 0;
  int lane = 0;
  std::vector<Range> keys;
};
// Nothing if more than `limit` rows see something.
std::optional<std::vector<FewKeys>> few_rows(const Schedule& schedule, index_t q_rows, index_t limit);

// Floats of scratch for calls of that kind, whatever the number of keys; 64-byte aligned like the rest.
index_t few_scratch_floats(const HeadShape& shape, index_t q_rows, int threads);

// As attend_block, to the same state. `scratch`: few_scratch_floats, of any content. A row's result depends
// on its own keys and their order alone, and, where a block is larger than caches, on whether its KV head has
// another query.
void attend_few(const AttendRun& run, const std::vector<FewKeys>& rows, index_t q_rows, float* scratch,
                const Poll& poll);

}  // namespace ringattn::cpu
