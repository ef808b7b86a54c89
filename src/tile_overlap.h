// Do two tiles of a list share a (query, key) pair?
#pragma once
#include <optional>
#include <span>
#include <string>

#include "src/types.h"

namespace ringattn {

// Two tiles of a list, by their index in it, and one pair that both hold.
struct Overlap {
  std::size_t first = 0, second = 0;  // first < second
  index_t query = 0, key = 0;
};

// Exact: rectangles may overlap where bands do not. Tiles must be normalised; empty ones overlap nothing.
// O(n log n) for tiles whose rectangles are disjoint, plus one step for each pair of rectangles that overlap.
std::optional<Overlap> find_overlap(std::span<const Tile> tiles);

// "{q [0,5), k [0,5), band [-4,0]}", for messages.
std::string to_text(const Tile& tile);

}  // namespace ringattn
