// The part of src/plan.h that finds the last hop at which some rank sees something.
#include <algorithm>

#include "src/load.h"
#include "src/plan.h"
#include "src/ring_order.h"
#include "src/segment_index.h"

namespace ringattn {
namespace {

// The latest of the hops to the owners first .. last. Hops fall as the owner grows, but for the one step up
// from the rank itself (hop 0) to the next rank (hop ranks - 1).
index_t latest_hop(index_t rank, index_t first, index_t last, index_t ranks) {
  if (first <= rank && rank < last) return ranks - 1;
  return hop_of(rank, first, ranks);
}

// Stripes over P ranks: position i is held by rank i mod P, so query i meets key j at hop (i - j) mod P, and
// a normalised tile holds every difference i - j from -hi to -lo.
index_t last_hop_striped(const Mask& mask, index_t ranks) {
  index_t last = 0;
  for (const Tile& t : mask.tiles()) {
    const index_t first = -t.band.hi, final = -t.band.lo;
    // If the interval reaches across a multiple of P it holds the number before it, which is P - 1 mod P.
    if (floor_div(final, ranks) > floor_div(first, ranks)) return ranks - 1;
    last = std::max(last, final - floor_div(final, ranks) * ranks);
  }
  return last;
}

// Where the segments of a layout, in the order of their positions, come from owners that follow one another
// upwards or downwards (contiguous: one run, zigzag: two), the owners of neighbouring segments are an
// interval. run_end[i]: one past the last segment of the run that segment i begins.
std::vector<index_t> owner_runs(std::span<const OwnedSegment> segments) {
  const auto n = static_cast<index_t>(segments.size());
  std::vector<index_t> up(segments.size()), down(segments.size()), end(segments.size());
  for (index_t i = n - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const int step = i + 1 < n ? segments[at + 1].owner - segments[at].owner : 0;
    up[at] = step == 1 ? up[at + 1] : i + 1;
    down[at] = step == -1 ? down[at + 1] : i + 1;
    end[at] = std::max(up[at], down[at]);
  }
  return end;
}

// Stride 1 throughout: what a piece of queries sees is an interval of keys, held by neighbouring segments.
index_t last_hop_of_neighbours(const Mask& mask, const SegmentIndex& queries, const SegmentIndex& keys,
                               index_t ranks) {
  const std::vector<index_t> run_end = owner_runs(keys.sorted());
  const auto key_owner = [&](index_t i) { return keys.sorted()[static_cast<std::size_t>(i)].owner; };
  index_t last = 0;
  for (const Tile& tile : mask.tiles()) {
    const Range pieces = queries.meeting(tile.q);
    for (index_t p = pieces.begin; p < pieces.end; ++p) {
      const OwnedSegment& query = queries.sorted()[static_cast<std::size_t>(p)];
      const Segment piece = clipped(query.local, tile.q).segment;
      const Range seen = normalized({{piece.begin, piece.begin + piece.count}, tile.k, tile.band}).k;
      const Range met = keys.meeting(seen);
      for (index_t i = met.begin; i < met.end; i = run_end[static_cast<std::size_t>(i)]) {
        const index_t a = key_owner(i);
        const index_t b = key_owner(std::min(met.end, run_end[static_cast<std::size_t>(i)]) - 1);
        last = std::max(last, latest_hop(query.owner, std::min(a, b), std::max(a, b), ranks));
      }
      if (last == ranks - 1) return last;
    }
  }
  return last;
}

// Any layouts: counts the work of every rank.
index_t last_hop_of_any(const Mask& mask, const Sharding& sharding) {
  const LoadCounter counter(mask, sharding);
  const index_t ranks = sharding.ranks();
  index_t last = 0;
  for (int rank = 0; rank < sharding.ranks() && last < ranks - 1; ++rank) {
    const std::vector<Load> loads = counter.by_owner(rank);
    for (index_t owner = 0; owner < ranks; ++owner) {
      if (loads[static_cast<std::size_t>(owner)].pairs == 0) continue;
      last = std::max(last, hop_of(rank, owner, ranks));
    }
  }
  return last;
}

bool all_striped(const Sharding& s) {
  return s.q.kind() == LayoutKind::striped && s.k.kind() == LayoutKind::striped;
}

}  // namespace

int needed_hops(const Mask& mask, const Sharding& sharding) {
  const index_t ranks = sharding.ranks();
  if (all_striped(sharding)) return static_cast<int>(last_hop_striped(mask, ranks)) + 1;
  const SegmentIndex queries(sharding.q), keys(sharding.k);
  if (queries.strided().empty() && keys.strided().empty()) {
    return static_cast<int>(last_hop_of_neighbours(mask, queries, keys, ranks)) + 1;
  }
  return static_cast<int>(last_hop_of_any(mask, sharding)) + 1;
}

}  // namespace ringattn
