#include "src/plan.h"

#include "src/cut.h"
#include "src/load.h"
#include "src/refuse.h"
#include "src/ring_order.h"

namespace ringattn {

Plan::Plan(const Problem& problem, const Sharding& sharding, int rank)
    : mask_(problem.mask), sharding_(sharding), rank_(rank) {
  validate(problem, sharding);
  require_between("rank", rank, 0, ranks() - 1);
  const std::vector<Load> loads = LoadCounter(mask_, sharding_).by_owner(rank);
  const int hops = needed_hops(mask_, sharding_);
  hops_.reserve(static_cast<std::size_t>(hops));
  for (int s = 0; s < hops; ++s) {
    const auto owner = static_cast<int>(owner_at(rank, s, ranks()));
    const Load& load = loads[static_cast<std::size_t>(owner)];
    hops_.push_back(
        {.owner = owner, .k_rows = sharding_.k.rows(owner), .pairs = load.pairs, .tile_count = load.tiles});
  }
}

std::vector<Tile> Plan::tiles(std::size_t hop) const {
  if (hop >= hops_.size()) {
    refuse("hop", std::to_string(hop), "the plan has " + std::to_string(hops_.size()) + " hops");
  }
  std::vector<Tile> tiles;
  tiles.reserve(static_cast<std::size_t>(hops_[hop].tile_count));
  const std::vector<LocalSegment> keys = local_segments(sharding_.k, hops_[hop].owner);
  for (const LocalSegment& segment : local_segments(sharding_.q, rank_)) {
    const index_t last = segment.segment.position(segment.segment.count - 1);
    for (const Tile& tile : mask_.tiles()) {
      if (tile.q.begin > last) break;  // the mask's tiles are sorted by their first query
      const LocalSegment q = clipped(segment, tile.q);
      if (q.segment.count == 0) continue;
      for (const LocalSegment& k : keys) cut(tile, q, k, tiles);
    }
  }
  return tiles;
}

index_t Plan::pairs() const {
  index_t pairs = 0;
  for (const Hop& hop : hops_) pairs += hop.pairs;
  return pairs;
}

}  // namespace ringattn
