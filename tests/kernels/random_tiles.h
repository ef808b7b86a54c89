// Random lists of tiles.
#pragma once
#include <algorithm>
#include <random>
#include <vector>

#include "src/types.h"

namespace ringattn::test {

// Documents of random lengths with a window, so that several tiles meet in one group of 48 rows and in one
// block of 64 keys, and some rows see nothing.
inline std::vector<Tile> random_documents(index_t rows, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<Tile> tiles;
  for (index_t begin = 0; begin < rows;) {
    const index_t end = std::min(rows, begin + 1 + static_cast<index_t>(generator() % 40));
    const auto reach = static_cast<index_t>(generator() % 30);
    if (generator() % 4 != 0) tiles.push_back({{begin, end}, {begin, end}, {-reach, reach / 3}});
    begin = end;
  }
  return tiles;
}

// A grid of rectangles of random sizes, some of them tiles, each with a band of its own, in random order.
inline std::vector<Tile> random_grid(index_t q_rows, index_t k_rows, unsigned seed) {
  std::mt19937 generator(seed);
  const auto cuts = [&](index_t rows) {
    std::vector<index_t> at{0};
    while (at.back() < rows)
      at.push_back(std::min(rows, at.back() + 1 + static_cast<index_t>(generator() % 70)));
    return at;
  };
  const std::vector<index_t> q_cuts = cuts(q_rows), k_cuts = cuts(k_rows);
  std::vector<Tile> tiles;
  for (std::size_t a = 0; a + 1 < q_cuts.size(); ++a)
    for (std::size_t b = 0; b + 1 < k_cuts.size(); ++b) {
      const index_t diagonal = k_cuts[b] - q_cuts[a] + static_cast<index_t>(generator() % 60) - 30;
      const Band bands[] = {{}, {.lo = diagonal}, {.hi = diagonal}, {diagonal - 20, diagonal + 9}};
      if (generator() % 3 != 0)
        tiles.push_back({{q_cuts[a], q_cuts[a + 1]}, {k_cuts[b], k_cuts[b + 1]}, bands[generator() % 4]});
    }
  std::shuffle(tiles.begin(), tiles.end(), generator);
  return tiles;
}

}  // namespace ringattn::test
