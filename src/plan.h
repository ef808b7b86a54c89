// The schedule of one rank as data: which block of keys is at hand at each hop, and which tiles of it are
// seen. Pure: any rank of any number of ranks can be planned anywhere.
#pragma once
#include <cstdint>
#include <vector>

#include "src/problem.h"

namespace ringattn {

struct Hop {
  int owner = 0;       // rank whose keys and values are at hand: (rank - hop index) mod ranks
  index_t k_rows = 0;  // rows of that block
  index_t pairs = 0;   // visible (query, key) pairs of this rank at this hop, for one head
  index_t tile_count = 0;
};

class Plan {
 public:
  // Memory O(hops), beside the mask and the layouts: tiles are made when a hop asks for them. Time as for
  // LoadCounter and needed_hops: milliseconds for a rank of 4,096 over 10,000 documents (bench/plan.cpp).
  // Throws UsageError if the problem, its sharding or the rank is not valid.
  Plan(const Problem& problem, const Sharding& sharding, int rank);

  int rank() const { return rank_; }
  int ranks() const { return sharding_.ranks(); }
  index_t q_rows() const { return sharding_.q.rows(rank_); }
  index_t k_rows() const { return sharding_.k.rows(rank_); }
  // The same number on every rank: trailing hops at which no rank sees anything are cut. At least 1.
  const std::vector<Hop>& hops() const { return hops_; }
  // Tiles of hop s in local rows (q: of this rank's shard, k: of the owner's), disjoint, normalised, none
  // empty. A band holds for absolute local rows: key row j is visible to query row i iff lo <= j - i <= hi.
  std::vector<Tile> tiles(std::size_t hop) const;
  index_t pairs() const;  // over all hops, for one head

 private:
  Mask mask_;
  Sharding sharding_;
  int rank_;
  std::vector<Hop> hops_;
};

// Number of hops that some rank needs, the same for every rank; 1 <= result <= ranks. Exact. Time: mask tiles
// x the query segments that they meet if both layouts are contiguous or zigzag (or custom with stride 1),
// mask tiles if both are striped; any other pair of layouts counts the work of all ranks.
int needed_hops(const Mask& mask, const Sharding& sharding);

}  // namespace ringattn
