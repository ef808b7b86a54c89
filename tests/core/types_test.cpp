#include "src/types.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <utility>

#include "src/error.h"

namespace ringattn {
namespace {

using Pairs = std::set<std::pair<index_t, index_t>>;

Pairs pairs_of(const Tile& t) {
  Pairs pairs;
  for (index_t i = t.q.begin; i < t.q.end; ++i) {
    for (index_t j = t.k.begin; j < t.k.end; ++j) {
      if (t.band.lo <= j - i && j - i <= t.band.hi) pairs.emplace(i, j);
    }
  }
  return pairs;
}

template <class Visit>
void for_small_tiles(Visit visit) {
  for (index_t qb = 0; qb <= 2; ++qb) {
    for (index_t qe = qb; qe <= 5; ++qe) {
      for (index_t kb = 0; kb <= 2; ++kb) {
        for (index_t ke = kb; ke <= 6; ++ke) {
          for (index_t lo = -7; lo <= 7; ++lo) {
            for (index_t hi = -7; hi <= 7; ++hi) visit(Tile{{qb, qe}, {kb, ke}, {lo, hi}});
          }
        }
      }
    }
  }
}

TEST(VisiblePairs, CountsEverySmallTile) {
  for_small_tiles(
      [](const Tile& t) { ASSERT_EQ(visible_pairs(t), static_cast<index_t>(pairs_of(t).size())); });
}

TEST(Normalized, HoldsTheSamePairsAndOnlyWhatTheyReach) {
  for_small_tiles([](const Tile& t) {
    const Tile n = normalized(t);
    const Pairs pairs = pairs_of(t);
    ASSERT_EQ(pairs_of(n), pairs);
    ASSERT_EQ(normalized(n), n);
    if (pairs.empty()) {
      ASSERT_EQ(n, (Tile{{0, 0}, {0, 0}, {0, 0}}));
      return;
    }
    // The form follows from the set of pairs, so equal sets have equal forms.
    Tile reach{{99, -99}, {99, -99}, {99, -99}};
    for (const auto& [i, j] : pairs) {
      reach.q = {std::min(reach.q.begin, i), std::max(reach.q.end, i + 1)};
      reach.k = {std::min(reach.k.begin, j), std::max(reach.k.end, j + 1)};
      reach.band = {std::min(reach.band.lo, j - i), std::max(reach.band.hi, j - i)};
    }
    ASSERT_EQ(n, reach);
  });
}

TEST(VisiblePairs, AreExactBeyond32And53Bits) {
  // n (n + 1) / 2 with n = 2^31 + 11, which is odd at the last bit and above 2^53.
  const index_t n = (index_t{1} << 31) + 11;
  EXPECT_EQ(visible_pairs({{0, n}, {0, n}, {-kUnbounded, 0}}), (n + 1) / 2 * n);
  // A whole rectangle just below 2^63, far from the origin.
  const index_t far = index_t{1} << 57;
  EXPECT_EQ(visible_pairs({{far, far + (index_t{1} << 31)}, {0, (index_t{1} << 32) - 1}, {}}),
            std::numeric_limits<index_t>::max() - (index_t{1} << 31) + 1);
  EXPECT_THROW(visible_pairs({{0, index_t{1} << 31}, {0, index_t{1} << 32}, {}}), UsageError);
}

TEST(VisiblePairs, BandsAtTheEndsOfTheIntegersDoNotOverflow) {
  constexpr index_t least = std::numeric_limits<index_t>::min(), most = std::numeric_limits<index_t>::max();
  EXPECT_EQ(visible_pairs({{0, 5}, {0, 7}, {least, most}}), 35);
  EXPECT_EQ(visible_pairs({{0, 5}, {0, 5}, {least, 0}}), 15);  // the example in src/types.h
  EXPECT_EQ(visible_pairs({{0, 5}, {0, 7}, {most, least}}), 0);
  EXPECT_EQ(normalized({{0, 5}, {0, 7}, {least, most}}), (Tile{{0, 5}, {0, 7}, {-4, 6}}));
}

TEST(DType, NamesGoBothWaysAndOthersAreRefused) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(dtype_from_name(name_of(t)), t);
  try {
    dtype_from_name("f64");
    FAIL() << "f64 was accepted";
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "dtype is 'f64'; allowed are f32, bf16 and f16");
  }
}

}  // namespace
}  // namespace ringattn
