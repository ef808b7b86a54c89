// How much one rank has to do with each block of keys, counted without listing the tiles.
#pragma once
#include <vector>

#include "src/layout.h"
#include "src/mask.h"
#include "src/segment_index.h"

namespace ringattn {

struct Load {
  index_t pairs = 0, tiles = 0;
};

class LoadCounter {
 public:
  // Keeps references to both.
  LoadCounter(const Mask& mask, const Sharding& sharding);
  // Work of the rank's queries with the keys of owner 0, 1, .. ranks - 1. Time: mask tiles x query segments
  // of the rank, and for each of those pairs the key segments that it meets if their stride is 1, a constant
  // if queries and keys are striped over the ranks, every key segment otherwise.
  std::vector<Load> by_owner(int rank) const;

 private:
  struct Tally;
  void add_neighbours(const Tile& tile, const LocalSegment& q, Tally& tally) const;
  void add_stripes(const Tile& tile, const LocalSegment& q, Tally& tally) const;

  const Mask& mask_;
  const Sharding& sharding_;
  SegmentIndex keys_;
};

}  // namespace ringattn
