#include "launch/checked_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "launch/checked_keys.h"
#include "launch/head_rows.h"

namespace ringattn::launch {
namespace {

TEST(SampleRows, HoldsTheFirstAndTheLastRowAndNoneTwice) {
  for (const index_t batch : {1, 3}) {
    for (const index_t length : {1, 2, 3, 16, 17, 1021}) {
      for (const index_t count : {1, 2, 3, 16, 100}) {
        const auto rows = sample_rows(batch, length, count);
        ASSERT_EQ(std::ssize(rows), std::min(count, batch * length));
        EXPECT_EQ(rows.back(), (QueryRow{.batch = batch - 1, .position = length - 1}));
        if (rows.size() > 1) {
          EXPECT_EQ(rows.front(), (QueryRow{.batch = 0, .position = 0}));
        }
        for (std::size_t i = 1; i < rows.size(); ++i) {
          const auto flat = [&](const QueryRow& r) { return r.batch * length + r.position; };
          ASSERT_LT(flat(rows[i - 1]), flat(rows[i]));
        }
        for (const QueryRow& row : rows) ASSERT_TRUE(row.position >= 0 && row.position < length);
      }
    }
  }
  EXPECT_TRUE(sample_rows(2, 0, 16).empty());
  EXPECT_TRUE(sample_rows(2, 5, 0).empty());
}

TEST(SampleRows, ReachesEveryRankOfEveryLayout) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    const Layout layout = Layout::make(kind, 32768, 3);
    std::set<int> holders;
    for (const QueryRow& row : sample_rows(1, 32768, 16)) {
      for (int r = 0; r < 3; ++r) {
        if (local_row(layout, r, row.position)) holders.insert(r);
      }
    }
    EXPECT_EQ(holders.size(), 3u) << name_of(kind);
  }
}

TEST(SampleRows, WorksOnSequencesThatNobodyCouldHold) {
  const auto rows = sample_rows(1, index_t{1} << 48, 16);
  EXPECT_EQ(rows.size(), 16u);
  EXPECT_EQ(rows.back().position, (index_t{1} << 48) - 1);
}

TEST(LocalRow, IsTheInverseOfPosition) {
  for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    for (const int ranks : {1, 3, 5, 20}) {
      const Layout layout = Layout::make(kind, 17, ranks);
      index_t found = 0;
      for (int r = 0; r < ranks; ++r) {
        for (index_t p = -1; p <= 17; ++p) {
          if (const auto row = local_row(layout, r, p)) {
            EXPECT_EQ(layout.position(r, *row), p);
            ++found;
          }
        }
      }
      EXPECT_EQ(found, 17);
    }
  }
}

TEST(VisibleKeys, AreTheKeysOfTheMask) {
  const std::vector<index_t> cu{0, 5, 5, 13};
  for (const Mask& mask : {Mask::full(7, 13), Mask::causal(13, 13), Mask::causal(13, 7),
                           Mask::window(13, 13, {2, 1}), Mask::documents(13, 13, cu, cu, {-1, 0})}) {
    for (index_t i = 0; i < mask.seqlen_q(); ++i) {
      std::set<index_t> want, got;
      for (const Tile& tile : mask.tiles()) {
        for (index_t j = 0; j < mask.seqlen_k(); ++j) {
          const bool inside = tile.q.begin <= i && i < tile.q.end && tile.k.begin <= j && j < tile.k.end;
          if (inside && tile.band.contains(j - i)) want.insert(j);
        }
      }
      for (const Range& range : visible_keys(mask, i)) {
        for (index_t j = range.begin; j < range.end; ++j) EXPECT_TRUE(got.insert(j).second);
      }
      EXPECT_EQ(got, want) << mask.name() << " row " << i;
    }
  }
}

TEST(VisibleQueries, AreThoseThatSeeTheKey) {
  const std::vector<index_t> cu{0, 5, 5, 13};
  for (const Mask& mask : {Mask::full(7, 13), Mask::causal(13, 13), Mask::causal(13, 7), Mask::causal(7, 13),
                           Mask::window(13, 13, {2, 1}), Mask::documents(13, 13, cu, cu, {-1, 0})}) {
    for (index_t j = 0; j < mask.seqlen_k(); ++j) {
      std::set<index_t> want, got;
      for (index_t i = 0; i < mask.seqlen_q(); ++i) {
        for (const Range& keys : visible_keys(mask, i)) {
          if (keys.begin <= j && j < keys.end) want.insert(i);
        }
      }
      for (const Range& range : visible_queries(mask, j)) {
        for (index_t i = range.begin; i < range.end; ++i) EXPECT_TRUE(got.insert(i).second);
      }
      EXPECT_EQ(got, want) << mask.name() << " key " << j;
    }
  }
}

Problem problem(index_t heads) {
  return {.shape = {.batch = 1, .num_heads = heads, .num_heads_kv = 1, .head_dim = 4, .head_dim_v = 2},
          .dtype = DType::f32,
          .mask = Mask::full(10, 100),
          .rope = {},
          .softmax_scale = {}};
}

TEST(CheckPlan, ChecksAllHeadsUnlessThatIsTooMuch) {
  // 10 rows x 100 keys x 2 x (4 + 2) = 12,000 FLOP a head.
  EXPECT_EQ(plan_check(problem(7), 10).heads_per_row, 7);
  EXPECT_EQ(plan_check(problem(7), 10).flops, 84'000);
  EXPECT_EQ(plan_check(problem(7), 10, 36'500).heads_per_row, 3);
  EXPECT_EQ(plan_check(problem(7), 10, 1).heads_per_row, 1);
}

TEST(KeyPlan, KeepsToItsBudget) {
  // 10 queries x 7 heads x 100 keys: 10 keys x 10 queries x 4 x 7 x (4 + 2) = 16,800 FLOP, forward 84,000.
  const KeyPlan all = plan_key_check(problem(7), 10);
  EXPECT_EQ(all.heads_per_key, 1);
  EXPECT_TRUE(all.recompute_rows);
  EXPECT_EQ(all.flops, 16'800 + 84'000);
  const KeyPlan few = plan_key_check(problem(7), 10, 83'999);
  EXPECT_FALSE(few.recompute_rows);
  EXPECT_EQ(few.flops, 16'800);
  Problem three = problem(6);
  three.shape.num_heads_kv = 3;
  EXPECT_EQ(plan_key_check(three, 10).heads_per_key, 3);
  EXPECT_EQ(plan_key_check(three, 10, 1).heads_per_key, 1);
}

TEST(CheckPlan, ASubsetOfHeadsReachesAllOfThemOverTheRows) {
  const CheckPlan plan = plan_check(problem(7), 10, 36'500);
  std::set<index_t> all;
  for (std::size_t r = 0; r < plan.rows.size(); ++r) {
    const auto heads = checked_heads(plan, r, 7);
    EXPECT_EQ(std::set(heads.begin(), heads.end()).size(), 3u);
    all.insert(heads.begin(), heads.end());
  }
  EXPECT_EQ(all.size(), 7u);
}

// Case A41: x = (1, 2, 3, 4), base 10000, positions 1 and 3.
TEST(Float64Rotation, TurnsPairsAsTheCasesSay) {
  const auto turned = [](Rope::Pairing pairing, index_t position) {
    std::vector<double> x{1, 2, 3, 4};
    Float64Rotation({.pairing = pairing}, 4).turn(position, x);
    return x;
  };
  const auto expect = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (std::size_t e = 0; e < 4; ++e) EXPECT_NEAR(got[e], want[e], 1e-12);
  };
  expect(turned(Rope::Pairing::interleaved, 1),
         {-1.142639663748, 1.922075596544, 2.959850667913, 4.029799501669});
  expect(turned(Rope::Pairing::half, 1), {-1.984110648556, 1.959900667497, 2.462377902412, 4.019799668335});
  expect(turned(Rope::Pairing::interleaved, 3),
         {-1.272232512720, -1.838864985141, 2.878668100437, 4.088186635603});
  expect(turned(Rope::Pairing::half, 3), {-1.413352520780, 1.879118066688, -2.828857481741, 4.058191135401});
  expect(turned(Rope::Pairing::none, 3), {1, 2, 3, 4});
}

TEST(Float64Rotation, AddsTheOffsetAndLeavesTheRestAlone) {
  std::vector<double> x{1, 2, 3, 4, 5, 6}, y = x;
  const Rope rope{.pairing = Rope::Pairing::half, .dim = 4};
  Rope offset = rope;
  offset.position_offset = 2;
  Float64Rotation(rope, 6).turn(3, x);
  Float64Rotation(offset, 6).turn(1, y);
  EXPECT_EQ(x, y);
  EXPECT_EQ(x[4], 5);
  EXPECT_EQ(x[5], 6);
}

TEST(HeadRows, GiveTheSameRowsHoweverLittleTheyHold) {
  constexpr index_t kRows = 1000, kDim = 3;
  int reads = 0;
  const ReadHead read = [&](index_t batch, index_t head, Range positions, std::span<float> to) {
    ++reads;
    ASSERT_LE(positions.end, kRows);
    for (std::size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<float>(batch * 7 + head * 5 + positions.begin * kDim) + static_cast<float>(i);
    }
  };
  for (const std::size_t budget : {std::size_t{0}, std::size_t{1} << 20}) {
    HeadRows rows(read, kRows, kDim, Float64Rotation({}, kDim), budget);
    for (index_t head = 0; head < 2; ++head) {
      rows.select(1, head);
      reads = 0;
      for (int repeat = 0; repeat < 2; ++repeat) {
        for (index_t p = 0; p < kRows; ++p) {
          const auto row = rows.at(p);
          for (std::size_t e = 0; e < kDim; ++e) {
            ASSERT_EQ(row[e], static_cast<double>(7 + head * 5 + p * kDim) + static_cast<double>(e));
          }
        }
      }
      EXPECT_EQ(reads == 4, budget > 0) << reads;  // 1000 rows are 4 pieces of 256
    }
  }
}

}  // namespace
}  // namespace ringattn::launch
