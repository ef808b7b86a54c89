#include "src/load.h"

#include <algorithm>
#include <array>
#include <utility>

namespace ringattn {
namespace {

// Non-negative remainder, b > 0.
index_t modulo(index_t a, index_t b) { return a - floor_div(a, b) * b; }

void add(Load& sum, const Load& load, index_t sign = 1) {
  sum.pairs += sign * load.pairs;
  sum.tiles += sign * load.tiles;
}

}  // namespace

struct LoadCounter::Tally {
  std::vector<Load> loads;      // by owner
  std::vector<Load> steps;      // what an owner has more than the owner before it
  std::vector<Tile> scratch{};  // reused by every cut

  Load load_of(const Tile& tile, const LocalSegment& q, const LocalSegment& k) {
    scratch.clear();
    cut(tile, q, k, scratch);
    Load load{.tiles = static_cast<index_t>(scratch.size())};
    for (const Tile& t : scratch) load.pairs += visible_pairs(t);
    return load;
  }
  void add_owned(const Tile& tile, const LocalSegment& q, const OwnedSegment& k) {
    add(loads[static_cast<std::size_t>(k.owner)], load_of(tile, q, k.local));
  }
};

LoadCounter::LoadCounter(const Mask& mask, const Sharding& sharding)
    : mask_(mask), sharding_(sharding), keys_(sharding.k) {}

// The keys that a run of neighbouring queries sees are an interval.
void LoadCounter::add_neighbours(const Tile& tile, const LocalSegment& q, Tally& tally) const {
  const Segment& s = q.segment;
  const Range seen = normalized({{s.begin, s.position(s.count - 1) + 1}, tile.k, tile.band}).k;
  const Range met = keys_.meeting(seen);
  for (index_t i = met.begin; i < met.end; ++i) {
    tally.add_owned(tile, q, keys_.sorted()[static_cast<std::size_t>(i)]);
  }
  for (const OwnedSegment& key : keys_.strided()) tally.add_owned(tile, q, key);
}

// Stripes of all owners differ in their first position only, which is the owner. The ends of the local key
// range are ceil((x - owner) / ranks) for x = tile.k.begin and tile.k.end, the ends of the local band
// ceil((lo + q - owner) / ranks) and floor((hi + q - owner) / ranks): as the owner grows from 0 to ranks - 1
// each of the four changes once, when the owner passes the remainder of its numerator. Between these steps
// all owners have the same load, so 5 loads stand for thousands of owners.
void LoadCounter::add_stripes(const Tile& tile, const LocalSegment& q, Tally& tally) const {
  const index_t ranks = sharding_.ranks(), first = q.segment.begin;
  std::array<index_t, 6> changes{0,
                                 modulo(tile.k.begin, ranks),
                                 modulo(tile.k.end, ranks),
                                 modulo(tile.band.lo + first, ranks),
                                 modulo(tile.band.hi + first, ranks) + 1,
                                 ranks};
  std::sort(changes.begin(), changes.end());
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    const index_t owner = changes[i];
    if (owner == changes[i + 1]) continue;
    const index_t rows = ceil_div(sharding_.k.seqlen() - owner, ranks);
    const Load load = tally.load_of(tile, q, {{.begin = owner, .count = rows, .stride = ranks}, 0});
    add(tally.steps[static_cast<std::size_t>(owner)], load);
    if (changes[i + 1] < ranks) add(tally.steps[static_cast<std::size_t>(changes[i + 1])], load, -1);
  }
}

std::vector<Load> LoadCounter::by_owner(int rank) const {
  const auto ranks = static_cast<std::size_t>(sharding_.ranks());
  Tally tally{.loads = std::vector<Load>(ranks), .steps = std::vector<Load>(ranks)};
  for (const LocalSegment& segment : local_segments(sharding_.q, rank)) {
    const bool stripes =
        sharding_.k.kind() == LayoutKind::striped && segment.segment.stride == sharding_.ranks();
    for (const Tile& tile : mask_.tiles()) {
      const LocalSegment q = clipped(segment, tile.q);
      if (q.segment.count == 0) continue;
      if (stripes) {
        add_stripes(tile, q, tally);
      } else {
        add_neighbours(tile, q, tally);
      }
    }
  }
  Load running;
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    add(running, tally.steps[owner]);
    add(tally.loads[owner], running);
  }
  return std::move(tally.loads);
}

}  // namespace ringattn
