#include "src/tile_overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/core/dense.h"

namespace ringattn::test {
namespace {

bool any_pair_twice(const std::vector<Tile>& tiles, index_t n) {
  for (index_t i = 0; i < n; ++i) {
    for (index_t j = 0; j < n; ++j) {
      if (std::count_if(tiles.begin(), tiles.end(), [&](const Tile& t) { return tile_formula({t})(i, j); }) >
          1) {
        return true;
      }
    }
  }
  return false;
}

TEST(TileOverlap, AgreesWithCountingPairs) {
  std::mt19937 random(11);
  const auto below = [&](index_t n) {
    return static_cast<index_t>(random() % static_cast<std::uint32_t>(n));
  };
  int overlapping = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<Tile> tiles;
    const index_t count = 1 + below(6);
    for (index_t t = 0; t < count; ++t) {
      const index_t q = below(10), k = below(10), lo = k - q + below(9) - 6;
      tiles.push_back(normalized({{q, q + below(7)}, {k, k + below(9)}, {lo, lo + below(7)}}));
    }
    const auto overlap = find_overlap(tiles);
    ASSERT_EQ(overlap.has_value(), any_pair_twice(tiles, 24)) << "trial " << trial;
    if (!overlap) continue;
    ++overlapping;
    ASSERT_LT(overlap->first, overlap->second);
    for (const std::size_t i : {overlap->first, overlap->second}) {
      ASSERT_TRUE(tile_formula({tiles[i]})(overlap->query, overlap->key)) << to_text(tiles[i]);
    }
  }
  // Both answers were put to the test.
  EXPECT_GT(overlapping, 500);
  EXPECT_LT(overlapping, 3000);
}

// A window over 10,000 tokens and 250,000 blocks behind it, every other one: a search over all pairs of tiles
// would take 3e10 steps, the sweep meets each block once or twice and the window each time.
TEST(TileOverlap, TakesManyBlocksBesideALongWindow) {
  constexpr index_t n = 10'000, block = 10;
  std::vector<Tile> tiles{{{0, n}, {0, n}, {-block, 0}}};
  for (index_t q = 3 * block; q < n; q += block) {
    for (index_t k = q % (2 * block); k <= q - 2 * block; k += 2 * block) {
      tiles.push_back({{q, q + block}, {k, k + block}, {}});
    }
  }
  for (Tile& t : tiles) t = normalized(t);
  EXPECT_GT(tiles.size(), 249'000U);
  EXPECT_FALSE(find_overlap(tiles).has_value());
  tiles.push_back(normalized({{n - 1, n}, {block, block + 1}, {}}));
  EXPECT_TRUE(find_overlap(tiles).has_value());
  tiles.back() = normalized({{n - 1, n}, {n - 1, n}, {}});
  const auto overlap = find_overlap(tiles);
  ASSERT_TRUE(overlap.has_value());
  EXPECT_EQ(overlap->first, 0U);
  EXPECT_EQ(overlap->second, tiles.size() - 1);
}

TEST(TileOverlap, EmptyTilesOverlapNothing) {
  const Tile empty = normalized({{3, 3}, {0, 5}, {}});
  EXPECT_FALSE(find_overlap(std::vector<Tile>{empty, empty, normalized({{0, 9}, {0, 9}, {}})}).has_value());
  EXPECT_FALSE(find_overlap({}).has_value());
}

}  // namespace
}  // namespace ringattn::test
