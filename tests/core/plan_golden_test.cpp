// Plans for 4,096 ranks, which no machine has to have. Every number follows from the formula beside it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/plan_check.h"

namespace ringattn::test {
namespace {

constexpr int kRanks = 4096;

Plan plan_of(const Mask& mask, LayoutKind kind, int rank) {
  return Plan(problem_of(mask), Sharding::make(kind, mask.seqlen_q(), mask.seqlen_k(), kRanks), rank);
}

// n rows a rank: the own block is the triangle n (n + 1) / 2, blocks of earlier ranks are seen whole, blocks
// of later ones not at all.
TEST(GoldenPlan, ContiguousCausal) {
  constexpr index_t n = 24414, length = n * kRanks;  // 99,999,744 tokens
  for (const int rank : {0, 1, 1000, 4095}) {
    const Plan plan = plan_of(Mask::causal(length, length), LayoutKind::contiguous, rank);
    ASSERT_EQ(plan.hops().size(), 4096U);
    EXPECT_EQ(plan.q_rows(), n);
    EXPECT_EQ(plan.hops()[0].pairs, n * (n + 1) / 2);
    EXPECT_EQ(plan.tiles(0), (std::vector<Tile>{{{0, n}, {0, n}, {1 - n, 0}}}));
    for (int s = 1; s < kRanks; ++s) {
      const Hop& hop = plan.hops()[static_cast<std::size_t>(s)];
      ASSERT_EQ(hop.owner, (rank - s + kRanks) % kRanks);
      ASSERT_EQ(hop.k_rows, n);
      ASSERT_EQ(hop.pairs, s <= rank ? n * n : 0) << "hop " << s;
      ASSERT_EQ(hop.tile_count, s <= rank ? 1 : 0);
    }
    EXPECT_EQ(plan.pairs(), n * (n + 1) / 2 + rank * n * n);
  }
}

// Chunks of c rows. Own block: two triangles and the early chunk seen whole by the late one, c (c + 1) + c^2.
// Any other block: either its early chunk is seen by both of ours, or both of its chunks by our late one,
// 2 c^2: every rank does the same at every hop.
TEST(GoldenPlan, ZigzagCausalIsTheSameForAllRanks) {
  constexpr index_t c = 12207, length = 2 * c * kRanks;
  for (const int rank : {0, 1, 2047, 4095}) {
    const Plan plan = plan_of(Mask::causal(length, length), LayoutKind::zigzag, rank);
    ASSERT_EQ(plan.hops().size(), 4096U);
    EXPECT_EQ(plan.hops()[0].pairs, c * (c + 1) + c * c);
    for (std::size_t s = 1; s < kRanks; ++s) ASSERT_EQ(plan.hops()[s].pairs, 2 * c * c) << "hop " << s;
  }
  // Rank 1 at hop 1 has rank 0's chunks 0 and 8191: both of its own chunks see chunk 0.
  EXPECT_EQ(plan_of(Mask::causal(length, length), LayoutKind::zigzag, 1).tiles(1),
            (std::vector<Tile>{{{0, c}, {0, c}, {1 - c, c - 1}}, {{c, 2 * c}, {0, c}, {1 - 2 * c, -1}}}));
}

// Query rows at r + P i, key rows at o + P j: row j is seen by row i iff j <= i if o <= r, j < i otherwise.
TEST(GoldenPlan, StripedCausalDiffersByTheDiagonalOnly) {
  constexpr index_t n = 24414, length = n * kRanks;
  for (const int rank : {0, 1, 1000, 4095}) {
    const Plan plan = plan_of(Mask::causal(length, length), LayoutKind::striped, rank);
    ASSERT_EQ(plan.hops().size(), 4096U);
    for (const Hop& hop : plan.hops()) {
      ASSERT_EQ(hop.pairs, hop.owner <= rank ? n * (n + 1) / 2 : n * (n - 1) / 2) << "owner " << hop.owner;
      ASSERT_EQ(hop.tile_count, 1);
    }
  }
}

// 4,095 ranks hold one row more or less than others; rank r of contiguous shards begins at r floor(S / P) +
// min(r, S mod P), and everything before it is seen whole.
TEST(GoldenPlan, UnevenShardsOf100MillionTokens) {
  constexpr index_t length = 100'000'000, size = length / kRanks, longer = length % kRanks;  // 24414, 256
  for (const int rank : {255, 256, 4095}) {
    const Plan plan = plan_of(Mask::causal(length, length), LayoutKind::contiguous, rank);
    const index_t rows = size + (rank < longer ? 1 : 0),
                  begin = rank * size + std::min<index_t>(rank, longer);
    EXPECT_EQ(plan.pairs(), rows * begin + rows * (rows + 1) / 2);
  }
}

// 10,000 documents of 1,000 to 18,998 tokens (100 million less the remainder): pairs of one rank, row by row:
// a row at place p of its document sees p + 1 keys.
TEST(GoldenPlan, TenThousandDocumentsMatchASumOverRows) {
  std::vector<index_t> cu{0};
  for (index_t d = 0; d < 10'000; ++d) cu.push_back(cu.back() + 1000 + (d * 7919) % 17'999);
  const index_t length = cu.back() + 12345;  // and rows that belong to no document
  const Mask mask = Mask::documents(length, length, cu, cu, {-1, 0});
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Sharding sharding = Sharding::make(kind, length, length, kRanks);
    for (const int rank : {0, 1777, 4095}) {
      index_t want = 0;
      for (const index_t p : sharding.q.positions(rank)) {
        const auto end = std::upper_bound(cu.begin(), cu.end(), p);
        if (end != cu.end()) want += p - *(end - 1) + 1;
      }
      EXPECT_EQ(Plan(problem_of(mask), sharding, rank).pairs(), want) << name_of(kind) << ", rank " << rank;
    }
  }
}

// The counts that the constructor makes without listing tiles, against the lists.
TEST(GoldenPlan, CountsAgreeWithTheTilesOfDocuments) {
  std::vector<index_t> cu_q{0}, cu_k{0};
  for (index_t d = 0; d < 1000; ++d) {
    cu_q.push_back(cu_q.back() + (d * 7919) % 997);
    cu_k.push_back(cu_k.back() + (d * 104729) % 1009);
  }
  const Mask mask = Mask::documents(cu_q.back(), cu_k.back() + 5, cu_q, cu_k, {300, 17});
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Plan plan = plan_of(mask, kind, 1234);
    for (std::size_t s = 0; s < plan.hops().size(); s += std::max<std::size_t>(1, plan.hops().size() / 37)) {
      const std::vector<Tile> tiles = plan.tiles(s);
      index_t pairs = 0;
      for (const Tile& t : tiles) pairs += visible_pairs(t);
      ASSERT_EQ(plan.hops()[s].pairs, pairs) << name_of(kind) << ", hop " << s;
      ASSERT_EQ(plan.hops()[s].tile_count, static_cast<index_t>(tiles.size()));
    }
  }
}

}  // namespace
}  // namespace ringattn::test
