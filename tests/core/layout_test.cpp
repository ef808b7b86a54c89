#include "src/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "src/error.h"
#include "src/types.h"
#include "tests/core/dense.h"

namespace ringattn::test {
namespace {

using Shards = std::vector<std::vector<Segment>>;

std::string refusal(index_t seqlen, const Shards& shards) {
  try {
    Layout::custom(seqlen, shards);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

constexpr LayoutKind kNamed[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};

TEST(Layout, HoldsEveryPositionOnceAndEvenly) {
  for (index_t n = 0; n <= 40; ++n) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const LayoutKind kind : kNamed) {
        const Layout layout = Layout::make(kind, n, ranks);
        ASSERT_EQ(layout.ranks(), ranks);
        std::vector<int> held(static_cast<std::size_t>(n));
        index_t least = n, most = 0;
        for (int r = 0; r < ranks; ++r) {
          const std::vector<index_t> positions = layout.positions(r);
          for (std::size_t row = 0; row < positions.size(); ++row) {
            ++held[static_cast<std::size_t>(positions[row])];
            ASSERT_EQ(layout.position(r, static_cast<index_t>(row)), positions[row]);
          }
          ASSERT_EQ(layout.rows(r), static_cast<index_t>(positions.size()));
          for (const Segment& s : layout.segments(r)) ASSERT_GT(s.count, 0);
          least = std::min(least, layout.rows(r));
          most = std::max(most, layout.rows(r));
        }
        ASSERT_EQ(std::count(held.begin(), held.end(), 1), n);
        ASSERT_EQ(layout.max_rows(), most);
        ASSERT_LE(most - least, kind == LayoutKind::zigzag ? 2 : 1);
      }
    }
  }
}

// Case A4: positions of zigzag rank 0 of 2 over 8 tokens.
TEST(Layout, NamedOnesHoldWhatTheirNamesSay) {
  using V = std::vector<index_t>;
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 8, 2).positions(0), (V{0, 1, 6, 7}));
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 8, 2).positions(1), (V{2, 3, 4, 5}));
  EXPECT_EQ(Layout::make(LayoutKind::contiguous, 7, 3).positions(0), (V{0, 1, 2}));
  EXPECT_EQ(Layout::make(LayoutKind::contiguous, 7, 3).positions(2), (V{5, 6}));
  EXPECT_EQ(Layout::make(LayoutKind::striped, 7, 3).positions(1), (V{1, 4}));
  // Case A3: 7 tokens on 2 ranks, no token lost. Chunks 0 1 | 2 3 | 4 5 | 6.
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 7, 2).positions(0), (V{0, 1, 6}));
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 7, 2).positions(1), (V{2, 3, 4, 5}));
  // Fewer tokens than ranks: the others have none.
  EXPECT_EQ(Layout::make(LayoutKind::striped, 2, 5).rows(4), 0);
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 0, 5).rows(0), 0);
}

// 2999 tokens over 4 ranks (case A3): 8 chunks of 375 but the last of 374.
TEST(Layout, ZigzagSharesDifferByOneChunkAtMost) {
  const Layout layout = Layout::make(LayoutKind::zigzag, 2999, 4);
  EXPECT_EQ(layout.rows(0), 375 + 374);
  EXPECT_EQ(layout.rows(3), 750);
  EXPECT_EQ(layout.position(0, 748), 2998);
}

TEST(Layout, JoinsSegmentsThatGoOnWhereTheOneBeforeEnded) {
  // The last rank's two zigzag chunks are neighbours.
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 16, 2).segments(1).size(), 1U);
  EXPECT_EQ(Layout::make(LayoutKind::zigzag, 16, 2).segments(0).size(), 2U);
  const Layout joined = Layout::custom(6, {{{0, 2, 2}, {4, 1, 2}}, {{5, 1, 1}, {1, 2, 2}}});
  EXPECT_EQ(joined.segments(0).size(), 1U);
  EXPECT_EQ(joined.positions(1), (std::vector<index_t>{5, 1, 3}));
}

TEST(Layout, LongSequencesDoNotOverflow) {
  const index_t n = kMaxSeqlen - 1;
  for (const LayoutKind kind : kNamed) {
    const Layout layout = Layout::make(kind, n, 4096);
    index_t rows = 0;
    for (int r = 0; r < 4096; ++r) rows += layout.rows(r);
    EXPECT_EQ(rows, n);
    const index_t last = layout.position(kind == LayoutKind::zigzag ? 0 : 4095,
                                         layout.rows(kind == LayoutKind::zigzag ? 0 : 4095) - 1);
    // n = 4095 mod 4096, so the last stripe is one row short and ends at n - 4096 + 4095 - 4095.
    EXPECT_EQ(last, kind == LayoutKind::striped ? n - 4096 : n - 1);
  }
}

TEST(Layout, CustomAcceptsAnyCoverAndKeepsItsOrder) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 300; ++trial) {
    const auto n = static_cast<index_t>(random() % 60);
    const int ranks = 1 + static_cast<int>(random() % 5);
    const Layout layout = random_layout(n, ranks, random);
    std::vector<int> held(static_cast<std::size_t>(n));
    for (int r = 0; r < ranks; ++r) {
      for (const index_t p : layout.positions(r)) ++held[static_cast<std::size_t>(p)];
    }
    ASSERT_EQ(std::count(held.begin(), held.end(), 1), n);
  }
  // 2^58 positions in two segments: checked without going through them.
  const index_t half = kMaxSeqlen / 2;
  EXPECT_EQ(Layout::custom(kMaxSeqlen, {{{half, half, 1}}, {{0, half, 1}}}).rows(1), half);
}

TEST(Layout, CustomNamesTheFirstPositionThatIsNotHeldOnce) {
  EXPECT_EQ(refusal(6, {{{0, 3, 2}}, {{1, 2, 2}}}), "layout: position 5 of [0, 6) is held by no rank");
  EXPECT_EQ(refusal(6, {{{1, 5, 1}}, {}}), "layout: position 0 of [0, 6) is held by no rank");
  EXPECT_EQ(refusal(6, {{{0, 4, 1}}, {{5, 1, 1}, {2, 2, 1}}}),
            "layout: position 2 is held twice, by rank 0 and rank 1");
  EXPECT_EQ(refusal(6, {{{0, 6, 1}}, {}, {{1, 2, 3}}}),
            "layout: position 1 is held twice, by rank 0 and rank 2");
  EXPECT_EQ(refusal(3, {{{0, 3, 1}}, {{2, 1, 1}}}), "layout: position 2 is held twice, by rank 0 and rank 1");
  EXPECT_EQ(refusal(0, {{}, {}}), "accepted");
  EXPECT_EQ(refusal(2, {{}, {}}), "layout: position 0 of [0, 2) is held by no rank");
}

// Drops, repeats or moves one position of a good layout and looks for that one in the message.
TEST(Layout, CustomFindsASingleFaultAnywhere) {
  for (index_t n = 2; n <= 12; ++n) {
    for (index_t bad = 0; bad < n; ++bad) {
      Shards shards(3);
      for (index_t p = 0; p < n; ++p) {
        if (p != bad) shards[static_cast<std::size_t>(p % 3)].push_back({p, 1, 1});
      }
      const std::string position = "position " + std::to_string(bad) + " ";
      ASSERT_NE(refusal(n, shards).find(position + "of [0, "), std::string::npos) << refusal(n, shards);
      shards[0].push_back({bad, 1, 5});
      ASSERT_EQ(refusal(n, shards), "accepted");
      shards[2].push_back({bad, 1, 1});
      ASSERT_NE(refusal(n, shards).find(position + "is held twice"), std::string::npos) << refusal(n, shards);
    }
  }
}

TEST(Layout, CustomNamesTheSegmentThatLeavesTheSequence) {
  EXPECT_EQ(refusal(6, {{{0, 3, 1}}, {{3, 1, 1}, {4, 3, 1}}}),
            "segment 1 of rank 1 {begin 4, count 3, stride 1} leaves [0, 6)");
  const index_t most = std::numeric_limits<index_t>::max();
  EXPECT_NE(refusal(6, {{{-1, 3, 1}}}).find("leaves"), std::string::npos);
  EXPECT_NE(refusal(6, {{{0, most, 1}}}).find("leaves"), std::string::npos);
  EXPECT_NE(refusal(6, {{{5, 2, kMaxSeqlen}}}).find("leaves"), std::string::npos);
  EXPECT_NE(refusal(6, {{{0, 2, most}}}).find("stride"), std::string::npos);
  EXPECT_NE(refusal(6, {{{0, 2, 0}}}).find("stride"), std::string::npos);
  EXPECT_NE(refusal(6, {{{0, -2, 1}}}).find("negative count"), std::string::npos);
  EXPECT_NE(refusal(6, {}).find("ranks is 0"), std::string::npos);
  EXPECT_NE(refusal(-6, {{}}).find("seqlen is -6"), std::string::npos);
}

TEST(Layout, RefusesRowsRanksAndNamesThatAreNotThere) {
  const Layout layout = Layout::make(LayoutKind::zigzag, 7, 2);
  EXPECT_THROW(layout.segments(2), UsageError);
  EXPECT_THROW(layout.rows(-1), UsageError);
  EXPECT_THROW(layout.position(0, 3), UsageError);
  EXPECT_THROW(layout.position(0, -1), UsageError);
  EXPECT_THROW(Layout::make(LayoutKind::zigzag, 7, 0), UsageError);
  EXPECT_THROW(Layout::make(LayoutKind::zigzag, -7, 2), UsageError);
  EXPECT_THROW(Layout::make(LayoutKind::custom, 7, 2), UsageError);
  for (const LayoutKind kind : kNamed) EXPECT_EQ(layout_from_name(name_of(kind)), kind);
  EXPECT_THROW(layout_from_name("custom"), UsageError);
}

}  // namespace
}  // namespace ringattn::test
