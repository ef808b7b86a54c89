#include "src/tile_overlap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <vector>

namespace ringattn {
namespace {

Range both(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

// The pairs of both tiles, normalised: the intersection of two tiles is a tile.
Tile both(const Tile& a, const Tile& b) {
  return normalized({.q = both(a.q, b.q),
                     .k = both(a.k, b.k),
                     .band = {std::max(a.band.lo, b.band.lo), std::min(a.band.hi, b.band.hi)}});
}

// Tiles that the sweep over the queries has entered, kept so that those near a range of keys are found fast:
// sorted by k.begin within classes of width 2^c <= k.count() < 2^(c+1). A tile of class c that reaches into a
// range begins less than 2^(c+1) before it, so few are looked at in vain.
class OpenTiles {
 public:
  explicit OpenTiles(std::span<const Tile> tiles) : tiles_(tiles) {}

  // An open tile that shares a pair with tile i, if there is one. Tiles that ended before tile i begins are
  // dropped when they are met.
  std::optional<std::size_t> overlapping(std::size_t i) {
    const Tile& tile = tiles_[i];
    for (std::size_t c = 0; c < classes_.size(); ++c) {
      auto& open = classes_[c];
      for (auto it = open.upper_bound(tile.k.begin - (index_t{2} << c));
           it != open.end() && it->first < tile.k.end;) {
        const Tile& other = tiles_[it->second];
        if (other.q.end <= tile.q.begin) {
          it = open.erase(it);
        } else if (!both(tile, other).q.empty()) {
          return it->second;
        } else {
          ++it;
        }
      }
    }
    return std::nullopt;
  }

  void add(std::size_t i) {
    const auto width = static_cast<std::uint64_t>(tiles_[i].k.count());
    classes_[static_cast<std::size_t>(std::bit_width(width) - 1)].emplace(tiles_[i].k.begin, i);
  }

 private:
  std::span<const Tile> tiles_;
  std::array<std::multimap<index_t, std::size_t>, 60> classes_;  // kMaxSeqlen is 2^58
};

}  // namespace

std::optional<Overlap> find_overlap(std::span<const Tile> tiles) {
  std::vector<std::size_t> order(tiles.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::erase_if(order, [&](std::size_t i) { return tiles[i].q.empty(); });
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return tiles[a].q.begin < tiles[b].q.begin; });
  OpenTiles open(tiles);
  for (const std::size_t i : order) {
    if (const auto other = open.overlapping(i)) {
      const Tile shared = both(tiles[i], tiles[*other]);
      const index_t query = shared.q.begin;
      return Overlap{.first = std::min(i, *other),
                     .second = std::max(i, *other),
                     .query = query,
                     .key = std::max(shared.k.begin, query + shared.band.lo)};
    }
    open.add(i);
  }
  return std::nullopt;
}

std::string to_text(const Tile& t) {
  const auto pair = [](index_t a, index_t b) { return std::to_string(a) + "," + std::to_string(b); };
  return "{q [" + pair(t.q.begin, t.q.end) + "), k [" + pair(t.k.begin, t.k.end) + "), band [" +
         pair(t.band.lo, t.band.hi) + "]}";
}

}  // namespace ringattn
