// Plans of every rank against the oracle, pair by pair, over lengths, ranks, layouts and masks.
#include "src/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "src/error.h"
#include "tests/core/plan_check.h"

namespace ringattn::test {
namespace {

constexpr LayoutKind kNamed[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};

// The 8,694 cases of the first sketch of this design: 23 lengths, 6 numbers of ranks, 3 layouts, 7 windows
// and 3 ways to cut into documents (one of them with an empty document).
TEST(Plan, ComputesEveryVisiblePairOnceWithEqualLengths) {
  int cases = 0;
  for (index_t n = 1; n <= 23; ++n) {
    for (const auto& cu : {std::vector<index_t>{0, n}, {0, n / 3, n}, {0, n / 4, n / 4, n / 2, n}}) {
      for (const Window w : windows()) {
        const Mask mask = cu.size() == 2 ? Mask::window(n, n, w) : Mask::documents(n, n, cu, cu, w);
        for (int ranks = 1; ranks <= 6; ++ranks) {
          for (const LayoutKind kind : kNamed) {
            ASSERT_TRUE(plans_match(mask, Sharding::make(kind, n, n, ranks), document_formula(cu, cu, w)));
            ++cases;
          }
        }
      }
    }
  }
  EXPECT_EQ(cases, 8694);
}

TEST(Plan, AlignsCausalAndWindowsAtTheEndWhenLengthsDiffer) {
  for (const index_t q : {0, 1, 2, 5, 11, 19}) {
    for (const index_t k : {0, 1, 3, 7, 13, 17}) {
      for (const Window w : windows()) {
        const Mask mask = Mask::window(q, k, w);
        for (const int ranks : {1, 2, 3, 5}) {
          for (const LayoutKind q_kind : kNamed) {
            for (const LayoutKind k_kind : kNamed) {
              const Sharding sharding{Layout::make(q_kind, q, ranks), Layout::make(k_kind, k, ranks)};
              ASSERT_TRUE(plans_match(mask, sharding, window_formula(q, k, w)));
            }
          }
        }
      }
    }
  }
}

// Offsets that differ between queries and keys, empty documents on either side, rows past the last offset.
TEST(Plan, KeepsPackedDocumentsApart) {
  struct Packing {
    std::vector<index_t> q, k;
    index_t seqlen_q, seqlen_k;
  };
  const std::vector<Packing> packings = {
      {{0, 0, 1, 1, 3}, {0, 0, 3, 3, 8}, 3, 8},              // case A13
      {{0, 0, 1, 1, 3, 3, 3}, {0, 0, 3, 3, 8, 8, 8}, 3, 8},  // with its two trailing empty documents
      {{0, 5, 5, 12}, {0, 0, 7, 11}, 17, 13},
      {{0, 7, 11, 11, 20}, {0, 2, 13, 19, 23}, 23, 23},
      {{0}, {0}, 7, 5},
  };
  for (const Packing& p : packings) {
    for (const Window w : windows()) {
      const Mask mask = Mask::documents(p.seqlen_q, p.seqlen_k, p.q, p.k, w);
      for (int ranks = 1; ranks <= 5; ++ranks) {
        for (const LayoutKind kind : kNamed) {
          ASSERT_TRUE(plans_match(mask, Sharding::make(kind, p.seqlen_q, p.seqlen_k, ranks),
                                  document_formula(p.q, p.k, w)));
        }
      }
    }
  }
}

TEST(Plan, FollowsAnyListOfTilesOnAnyLayout) {
  std::mt19937 random(20240611);
  for (int trial = 0; trial < 1500; ++trial) {
    const auto q = static_cast<index_t>(random() % 24), k = static_cast<index_t>(random() % 24);
    const int ranks = 1 + static_cast<int>(random() % 6);
    const std::vector<Tile> tiles = random_tiles(q, k, random);
    const Mask mask = Mask::tiles(q, k, tiles);
    std::vector<Layout> q_layouts{random_layout(q, ranks, random)};
    std::vector<Layout> k_layouts{random_layout(k, ranks, random)};
    for (const LayoutKind kind : kNamed) {
      q_layouts.push_back(Layout::make(kind, q, ranks));
      k_layouts.push_back(Layout::make(kind, k, ranks));
    }
    for (const Layout& q_layout : q_layouts) {
      for (const Layout& k_layout : k_layouts) {
        ASSERT_TRUE(plans_match(mask, {q_layout, k_layout}, tile_formula(tiles))) << "trial " << trial;
      }
    }
  }
}

TEST(Plan, FollowsWindowsOnMixedStrides) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 2000; ++trial) {
    const auto q = static_cast<index_t>(random() % 30), k = static_cast<index_t>(random() % 30);
    const int ranks = 1 + static_cast<int>(random() % 5);
    const Window w = windows()[random() % windows().size()];
    const Sharding sharding{random_layout(q, ranks, random), random_layout(k, ranks, random)};
    ASSERT_TRUE(plans_match(Mask::window(q, k, w), sharding, window_formula(q, k, w))) << "trial " << trial;
  }
}

// An equal stride on both sides is one tile a pair of segments, whatever the layout is called; so is a pair
// that the band leaves whole. Everything else costs one tile a row of the shorter side.
TEST(Plan, SplitsIntoRowsOnlyWhereNoBandFits) {
  const auto tiles_of = [](const Mask& mask, const Layout& q, const Layout& k) {
    return Plan(problem_of(mask), {q, k}, 0).hops()[0].tile_count;
  };
  const Layout whole = Layout::make(LayoutKind::contiguous, 12, 1);
  const Layout stripes = Layout::custom(12, {{{0, 6, 2}, {1, 6, 2}}});
  const Layout other_stripes = Layout::custom(12, {{{1, 6, 2}, {0, 6, 2}}});
  EXPECT_EQ(tiles_of(Mask::causal(12, 12), stripes, other_stripes), 4);
  EXPECT_EQ(tiles_of(Mask::full(12, 12), whole, stripes), 2);
  // Keys 0, 2, .. and 1, 3, .. have 6 rows each, all seen by someone.
  EXPECT_EQ(tiles_of(Mask::causal(12, 12), whole, stripes), 12);
  EXPECT_EQ(tiles_of(Mask::causal(12, 12), stripes, whole), 12);
}

TEST(Plan, SumsItsHops) {
  const Sharding sharding = Sharding::make(LayoutKind::zigzag, 23, 23, 3);
  index_t pairs = 0;
  for (int r = 0; r < 3; ++r) pairs += Plan(problem_of(Mask::causal(23, 23)), sharding, r).pairs();
  EXPECT_EQ(pairs, 23 * 24 / 2);
}

TEST(Plan, RefusesARankOrAHopThatIsNotThere) {
  const Sharding sharding = Sharding::make(LayoutKind::contiguous, 8, 8, 4);
  const Problem problem = problem_of(Mask::causal(8, 8));
  EXPECT_THROW(Plan(problem, sharding, 4), UsageError);
  EXPECT_THROW(Plan(problem, sharding, -1), UsageError);
  EXPECT_THROW(Plan(problem, sharding, 0).tiles(4), UsageError);
  EXPECT_THROW(Plan(problem, Sharding::make(LayoutKind::contiguous, 9, 8, 4), 0), UsageError);
}

}  // namespace
}  // namespace ringattn::test
