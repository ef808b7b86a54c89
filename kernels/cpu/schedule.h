// Tiles cut to the groups of 48 query rows that the kernel works on, and the order in which it takes them.
#pragma once
#include <span>
#include <vector>

#include "kernels/cpu/packed.h"

namespace ringattn::cpu {

// What one tile shows to one group. Key j (a row of the block) is visible to lane i iff
//   k.begin <= j < k.end,  lane_begin <= i < lane_end,  lo <= j - i <= hi.
struct Piece {
  Range k;  // cut to what the band lets these lanes reach; not empty
  int lane_begin = 0, lane_end = 0;
  index_t lo = 0, hi = 0;  // relative to the group: band.lo + first row of the group
};

class Schedule {
 public:
  // Throws UsageError naming a tile that leaves [0, q_rows) x [0, k_rows).
  Schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows);

  // Sorted by the first key.
  std::span<const Piece> pieces(index_t group) const;
  index_t groups() const { return static_cast<index_t>(first_.size()) - 1; }

  // Runs of `size` neighbouring groups that see anything, by their first group, longest work first.
  std::vector<index_t> runs(index_t size) const;

 private:
  std::vector<std::size_t> first_;  // group g owns pieces_[first_[g] .. first_[g+1])
  std::vector<Piece> pieces_;
};

}  // namespace ringattn::cpu
