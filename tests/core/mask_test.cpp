#include "src/mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/error.h"
#include "src/tile_overlap.h"
#include "tests/core/dense.h"

namespace ringattn::test {
namespace {

::testing::AssertionResult sees(const Mask& mask, const Visible& visible) {
  index_t total = 0;
  for (index_t i = 0; i < mask.seqlen_q(); ++i) {
    for (index_t j = 0; j < mask.seqlen_k(); ++j) {
      const auto holding = std::count_if(mask.tiles().begin(), mask.tiles().end(),
                                         [&](const Tile& t) { return tile_formula({t})(i, j); });
      total += holding;
      if (holding != (visible(i, j) ? 1 : 0)) {
        return ::testing::AssertionFailure()
               << mask.name() << " over " << mask.seqlen_q() << " x " << mask.seqlen_k() << ": query " << i
               << ", key " << j << " is in " << holding << " tiles";
      }
    }
  }
  if (mask.visible_pairs() != total) return ::testing::AssertionFailure() << mask.visible_pairs() << " pairs";
  return ::testing::AssertionSuccess();
}

template <class Make>
std::string refusal(Make make) {
  try {
    make();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

// Number of keys that each query sees, and the mean of their positions ("V=j" of the fault cases).
std::vector<double> mean_key(const Mask& mask) {
  std::vector<double> means;
  for (index_t i = 0; i < mask.seqlen_q(); ++i) {
    double sum = 0, count = 0;
    for (index_t j = 0; j < mask.seqlen_k(); ++j) {
      const bool seen = tile_formula({mask.tiles().begin(), mask.tiles().end()})(i, j);
      sum += seen ? static_cast<double>(j) : 0;
      count += seen ? 1 : 0;
    }
    means.push_back(sum / count);
  }
  return means;
}

TEST(Mask, FollowsTheFormulaForAllSmallLengthsAndWindows) {
  for (index_t q = 0; q <= 7; ++q) {
    for (index_t k = 0; k <= 7; ++k) {
      for (index_t left = -1; left <= 8; ++left) {
        for (index_t right = -1; right <= 8; ++right) {
          ASSERT_TRUE(sees(Mask::window(q, k, {left, right}), window_formula(q, k, {left, right})));
        }
      }
      ASSERT_TRUE(sees(Mask::full(q, k), [](index_t, index_t) { return true; }));
      ASSERT_TRUE(sees(Mask::causal(q, k), [=](index_t i, index_t j) { return j <= i + k - q; }));
    }
  }
}

TEST(Mask, CausalIsAlignedBottomRight) {
  EXPECT_EQ(mean_key(Mask::causal(2, 5)), (std::vector{1.5, 2.0}));  // case A34
  EXPECT_EQ(mean_key(Mask::window(8, 8, {2, 0})),
            (std::vector<double>{0, 0.5, 1, 2, 3, 4, 5, 6}));  // case A18, test 1
}

// Case A18, test 2: windows as long as the sequence or longer are causal, and so are their tiles.
TEST(Mask, WindowsBeyondTheLengthAreOneAndTheSame) {
  const Mask causal = Mask::causal(33, 33);
  for (const index_t left :
       {index_t{32}, index_t{33}, index_t{1'000'000'000}, index_t{-1}, std::numeric_limits<index_t>::max()}) {
    const Mask window = Mask::window(33, 33, {left, 0});
    EXPECT_TRUE(std::ranges::equal(window.tiles(), causal.tiles())) << left;
  }
  EXPECT_FALSE(std::ranges::equal(Mask::window(33, 33, {31, 0}).tiles(), causal.tiles()));
}

// Case A18, test 3: clamping the right side to seqlen_k before the shift would hide keys.
TEST(Mask, WideRightWindowSeesAllKeysWhenThereAreMoreQueries) {
  const Mask wide = Mask::window(6, 2, {-1, 2147483647});
  EXPECT_EQ(mean_key(wide), (std::vector{0.5, 0.5, 0.5, 0.5, 0.5, 0.5}));
  EXPECT_TRUE(std::ranges::equal(wide.tiles(), Mask::full(6, 2).tiles()));
}

TEST(Mask, RefusesNegativeWindowsAndLengths) {
  EXPECT_EQ(refusal([] {
              Mask::window(8, 8, {-3, 0});
            }),
            "window is (-3,0); left and right are -1 (no limit), 0 or more keys");  // case A18
  EXPECT_NE(refusal([] { Mask::window(8, 8, {0, -2}); }).find("window is (0,-2)"), std::string::npos);
  EXPECT_NE(refusal([] { Mask::full(-1, 8); }).find("seqlen_q is -1"), std::string::npos);
  EXPECT_NE(refusal([] { Mask::full(8, -5); }).find("seqlen_k is -5"), std::string::npos);
  EXPECT_NE(refusal([] { Mask::full(8, kMaxSeqlen + 1); }).find("seqlen_k is 288230376151711745"),
            std::string::npos);
}

TEST(Mask, RefusesMorePairsThan63Bits) {
  const index_t n = index_t{1} << 32;
  EXPECT_NE(refusal([&] { Mask::full(n, n); }).find("2^63"), std::string::npos);
  // Each document alone would fit: 2^62 + 2^62.
  const std::vector<index_t> cu{0, n / 2, n};
  EXPECT_NE(refusal([&] { Mask::documents(n, n, cu, cu, {}); }), "accepted");
  EXPECT_EQ(Mask::causal(n - 1, n - 1).visible_pairs(), (n - 1) * (n / 2));  // n (n + 1) / 2 for n - 1
}

TEST(Mask, DocumentsSeeOnlyThemselvesAlignedAtTheirOwnEnd) {
  const std::vector<std::vector<index_t>> offsets = {
      {0, 0, 3, 3}, {0, 2, 2, 7}, {0, 1, 6, 6}, {0, 0, 0, 0}, {0, 5, 6, 7}};
  for (const auto& cu_q : offsets) {
    for (const auto& cu_k : offsets) {
      for (const Window w : windows()) {
        ASSERT_TRUE(sees(Mask::documents(7, 9, cu_q, cu_k, w), document_formula(cu_q, cu_k, w)));
      }
    }
  }
}

// Case A13: query lengths 0, 1, 0, 2 and key lengths 0, 3, 0, 5; local means 1.0 | 1.5 2.0.
TEST(Mask, EmptyDocumentsChangeNothing) {
  std::vector<index_t> cu_q{0, 0, 1, 1, 3}, cu_k{0, 0, 3, 3, 8};
  const Mask mask = Mask::documents(3, 8, cu_q, cu_k, {-1, 0});
  EXPECT_EQ(mean_key(mask), (std::vector{1.0, 3 + 1.5, 3 + 2.0}));
  EXPECT_EQ(mask.visible_pairs(), 3 + 4 + 5);
  cu_q.insert(cu_q.end(), {3, 3});
  cu_k.insert(cu_k.end(), {8, 8});
  EXPECT_TRUE(std::ranges::equal(Mask::documents(3, 8, cu_q, cu_k, {-1, 0}).tiles(), mask.tiles()));
}

// Case A32: 946 rows of which the last 2 belong to no document.
TEST(Mask, RowsPastTheLastOffsetSeeNothingAndAreNotSeen) {
  const std::vector<index_t> cu{0, 144, 432, 944};
  const Mask mask = Mask::documents(946, 946, cu, cu, {-1, 0});
  EXPECT_TRUE(std::ranges::equal(mask.tiles(), Mask::documents(944, 944, cu, cu, {-1, 0}).tiles()));
  for (const Tile& t : mask.tiles()) EXPECT_TRUE(t.q.end <= 944 && t.k.end <= 944);
}

TEST(Mask, RefusesOffsetsThatAreNoPacking) {
  const auto documents = [](std::vector<index_t> q, std::vector<index_t> k) {
    return refusal([&] { Mask::documents(10, 10, q, k, {}); });
  };
  EXPECT_EQ(documents({0, 5, 3, 10}, {0, 5, 6, 10}), "cu_seqlens_q[2] is 3; allowed are 5 to 10");
  EXPECT_EQ(documents({0, 5, 11}, {0, 5, 6}), "cu_seqlens_q[2] is 11; allowed are 5 to 10");
  EXPECT_EQ(documents({0, 5}, {1, 5}), "cu_seqlens_k[0] is 1; the first offset is 0");
  EXPECT_EQ(documents({0, 5}, {0, -1}), "cu_seqlens_k[1] is -1; allowed are 0 to 10");
  EXPECT_EQ(documents({}, {0}), "cu_seqlens_q is empty; it starts with 0");
  EXPECT_EQ(documents({0, 5, 10}, {0, 10}),
            "cu_seqlens_q has 3 offsets and cu_seqlens_k has 2; both have one more than there are documents");
}

TEST(Mask, KnowsWhetherOneShiftAlignsQueriesWithKeys) {
  const auto align = [](index_t seqlen_q, index_t seqlen_k, std::vector<index_t> q, std::vector<index_t> k) {
    return Mask::documents(seqlen_q, seqlen_k, q, k, {-1, 0}).positions_align();
  };
  EXPECT_TRUE(Mask::causal(3, 8).positions_align());
  EXPECT_TRUE(align(9, 9, {0, 4, 9}, {0, 4, 9}));
  EXPECT_FALSE(align(9, 9, {0, 4, 9}, {0, 5, 9}));
  EXPECT_FALSE(align(3, 8, {0, 0, 1, 1, 3}, {0, 0, 3, 3, 8}));  // case A13
  EXPECT_TRUE(align(5, 8, {0, 0, 5}, {0, 3, 8}));               // a document without queries decides nothing
  EXPECT_FALSE(align(10, 9, {0, 4, 9}, {0, 4, 9}));             // a padded row more among the queries
}

TEST(Mask, TilesAreNormalisedSortedAndKeepTheirPairs) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const auto q = static_cast<index_t>(random() % 20), k = static_cast<index_t>(random() % 20);
    std::vector<Tile> tiles = random_tiles(q, k, random);
    std::shuffle(tiles.begin(), tiles.end(), random);
    const Mask mask = Mask::tiles(q, k, tiles);
    ASSERT_TRUE(sees(mask, tile_formula(tiles)));
    for (std::size_t i = 0; i < mask.tiles().size(); ++i) {
      const Tile& t = mask.tiles()[i];
      ASSERT_EQ(t, normalized(t));
      ASSERT_FALSE(t.q.empty());
      if (i == 0) continue;
      const Tile& before = mask.tiles()[i - 1];
      ASSERT_LE(std::pair(before.q.begin, before.k.begin), std::pair(t.q.begin, t.k.begin));
    }
  }
}

TEST(Mask, RefusesTilesThatOverlapOrLeaveTheSequence) {
  const Tile whole{{0, 4}, {0, 5}, {}}, corner{{3, 6}, {4, 9}, {-kUnbounded, 1}};
  EXPECT_EQ(refusal([&] {
              Mask::tiles(9, 9, {{{4, 5}, {0, 1}, {}}, corner, whole});
            }),
            "tile 1 " + to_text(corner) + " and tile 2 " + to_text(whole) +
                " overlap: both hold query 3 and key 4");
  // The same rectangles with bands that do not meet.
  EXPECT_EQ(refusal([&] {
              Mask::tiles(9, 9, {{{0, 4}, {0, 5}, {-9, 0}}, {{0, 4}, {0, 5}, {1, 9}}});
            }),
            "accepted");
  EXPECT_EQ(
      refusal([&] {
        Mask::tiles(9, 9, {{{0, 4}, {0, 5}, {}}, {{2, 10}, {5, 6}, {0, 3}}});
      }),
      "tile 1 is {q [2,10), k [5,6), band [0,3]}; allowed are queries in [0, 9) and keys in [0, 9), each "
      "with begin <= end");
  EXPECT_NE(refusal([&] { Mask::tiles(9, 9, {{{-1, 4}, {0, 5}, {}}}); }), "accepted");
  EXPECT_NE(refusal([&] { Mask::tiles(9, 9, {{{0, 4}, {5, 3}, {}}}); }), "accepted");
}

TEST(Mask, NamesSayWhatItIs) {
  const std::vector<index_t> cu{0, 2, 4, 8};
  EXPECT_EQ(Mask::full(8, 8).name(), "full");
  EXPECT_EQ(Mask::causal(8, 8).name(), "causal");
  EXPECT_EQ(Mask::window(8, 8, {-1, 0}).name(), "causal");
  EXPECT_EQ(Mask::window(8, 8, {4, 0}).name(), "window(4,0)");
  EXPECT_EQ(Mask::documents(8, 8, cu, cu, {-1, 0}).name(), "documents(3)+causal");
  EXPECT_EQ(Mask::tiles(8, 8, {{{0, 1}, {0, 1}, {}}}).name(), "tiles(1)");
}

}  // namespace
}  // namespace ringattn::test
