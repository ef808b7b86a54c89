// Which trailing hops are cut; the brute-force check of every plan test asserts the same over small cases.
#include <gtest/gtest.h>

#include "src/load.h"
#include "tests/core/plan_check.h"

namespace ringattn::test {
namespace {

int hops(const Mask& mask, LayoutKind kind, int ranks) {
  return needed_hops(mask, Sharding::make(kind, mask.seqlen_q(), mask.seqlen_k(), ranks));
}

// A window of w tokens (left = w - 1) reaches w - 1 keys back, into ceil((w - 1) / shard) earlier shards.
TEST(HopCut, WindowNeedsTheShardsItReaches) {
  constexpr index_t shard = 1009;
  constexpr int ranks = 4096;
  for (const index_t w :
       {index_t{1}, index_t{2}, shard, shard + 1, shard + 2, 3 * shard + 1, 3 * shard + 2}) {
    const Mask mask = Mask::window(shard * ranks, shard * ranks, {w - 1, 0});
    EXPECT_EQ(hops(mask, LayoutKind::contiguous, ranks), 1 + (w - 1 + shard - 1) / shard) << w;
    // Stripes: the key w - 1 before a query is w - 1 ranks back.
    EXPECT_EQ(hops(mask, LayoutKind::striped, ranks), std::min<index_t>(w, ranks)) << w;
  }
}

// Chunk c and chunk c + 1 are one rank apart, upwards in the first half and downwards in the second, where
// the owner of the keys before a query is the next rank: P - 1 hops away.
TEST(HopCut, ZigzagWindowIsNearBothWays) {
  constexpr index_t chunk = 1009;
  const Mask mask = Mask::window(2 * chunk * 4096, 2 * chunk * 4096, {chunk, 0});
  EXPECT_EQ(hops(mask, LayoutKind::zigzag, 4096), 4096);
  const Mask self = Mask::window(2 * chunk * 4096, 2 * chunk * 4096, {0, 0});
  EXPECT_EQ(hops(self, LayoutKind::zigzag, 4096), 1);
}

TEST(HopCut, FullAndCausalNeedAllHopsWhereAllRanksHaveRows) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    EXPECT_EQ(hops(Mask::full(8191, 8191), kind, 4096), 4096);
    EXPECT_EQ(hops(Mask::causal(8192, 8192), kind, 4096), 4096);
    EXPECT_EQ(hops(Mask::causal(0, 0), kind, 4096), 1);
    EXPECT_EQ(hops(Mask::full(5, 0), kind, 7), 1);
  }
  // Ranks 5.. have no row: rank 4 sees rank 0's at hop 4, and nobody sees more.
  EXPECT_EQ(hops(Mask::causal(5, 5), LayoutKind::contiguous, 64), 5);
}

TEST(HopCut, DocumentsWithinAShardNeedNoExchange) {
  std::vector<index_t> cu;
  for (index_t d = 0; d <= 4096 * 3; ++d) cu.push_back(d * 101);
  const Mask mask = Mask::documents(cu.back(), cu.back(), cu, cu, {-1, 0});
  EXPECT_EQ(hops(mask, LayoutKind::contiguous, 4096), 1);
  EXPECT_EQ(hops(mask, LayoutKind::contiguous, 4095), 2);
  EXPECT_EQ(hops(mask, LayoutKind::striped, 4096), 101);
}

// The fast ways against the count over all owners, on sizes that the brute force does not reach.
TEST(HopCut, AgreesWithTheLoadsOfAllRanks) {
  std::mt19937 random(17);
  for (int trial = 0; trial < 150; ++trial) {
    const index_t q = 200 + static_cast<index_t>(random() % 400),
                  k = 200 + static_cast<index_t>(random() % 400);
    const int ranks = 2 + static_cast<int>(random() % 40);
    const auto bound = [&] { return static_cast<index_t>(random() % 60) - 1; };
    const Mask mask =
        trial % 2 == 0
            ? Mask::window(q, k, {bound(), bound()})
            : Mask::tiles(q, k, {{{q / 3, q / 2}, {k / 4, k / 3}, {}}, {{q / 2, q}, {0, k}, {-3, bound()}}});
    for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
      const Sharding sharding = Sharding::make(kind, q, k, ranks);
      const LoadCounter counter(mask, sharding);
      int want = 1;
      for (int r = 0; r < ranks; ++r) {
        const std::vector<Load> loads = counter.by_owner(r);
        for (int s = 0; s < ranks; ++s) {
          if (loads[static_cast<std::size_t>((r - s + ranks) % ranks)].pairs > 0)
            want = std::max(want, s + 1);
        }
      }
      ASSERT_EQ(needed_hops(mask, sharding), want)
          << mask.name() << ", " << name_of(kind) << ", " << q << " x " << k << ", " << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace ringattn::test
