// Tiles cut to the groups of rows that the blocks of threads work on.
#pragma once
#include <span>
#include <vector>

#include "kernels/cuda/params.h"

namespace ringattn::cuda {

struct Schedule {
  std::vector<Group> groups;
  std::vector<Piece> pieces;
  std::vector<Merge> merges{};  // not empty: its groups are parts of groups, see split.h
};

// Groups of queries that see any key. Throws UsageError naming a tile that leaves [0, q_rows) x [0, k_rows).
Schedule query_schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows, int group_rows);
// First rows of the groups that are not in it: of those, the queries see no key.
std::vector<index_t> rows_beside(const Schedule& schedule, index_t q_rows, int group_rows);
// Groups of keys that any query sees: the same with rows and columns exchanged.
Schedule key_schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows, int group_rows);

}  // namespace ringattn::cuda
