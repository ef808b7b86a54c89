// Heads of a group that share blocks of threads: the rule, the rows, and that the answers are the oracle's
// for few rows and every group.
#include "kernels/cuda/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <set>

#include "kernels/cuda/block_rows.h"
#include "tests/cuda/unsplit.h"
#include "tests/simt/stats.h"

namespace ringattn::test {
namespace {

using cuda::HeadCounts, cuda::Pack, cuda::pack_of;

index_t quotient_up(index_t a, index_t b) { return (a + b - 1) / b; }

index_t blocks(const Pack& pack, index_t q_rows, index_t group) {
  return quotient_up(q_rows, pack.rows) * quotient_up(group, pack.heads);
}

void expect_pack(index_t q_rows, index_t group, int block_rows, int heads, int rows) {
  const Pack pack = pack_of(q_rows, group, block_rows, HeadCounts::all);
  EXPECT_EQ(pack.heads, heads) << q_rows << " x " << group << " in " << block_rows;
  EXPECT_EQ(pack.rows, rows) << q_rows << " x " << group << " in " << block_rows;
}

TEST(CudaPack, TheFewestBlocksOfTheFewestHeads) {
  expect_pack(1, 1, 128, 1, 1);
  expect_pack(1, 8, 128, 8, 1);
  expect_pack(0, 8, 128, 8, 1);
  expect_pack(1, 150, 128, 75, 1);  // two blocks, as 128 and 22 would be
  expect_pack(17, 8, 128, 4, 17);   // 136 rows are two blocks; 4 heads are the fewest that do with two
  expect_pack(37, 8, 128, 3, 37);   // of room for 42
  expect_pack(29, 7, 192, 4, 29);   // 203 rows are two blocks
  expect_pack(65, 8, 128, 8, 16);   // 5 blocks instead of 8
  expect_pack(64, 2, 128, 2, 64);
  expect_pack(65, 2, 128, 1, 65);    // two blocks either way
  expect_pack(128, 8, 128, 1, 128);  // full
  expect_pack(200, 8, 128, 8, 16);   // 13 instead of 16
  expect_pack(1000, 8, 128, 1, 128);
  EXPECT_EQ(pack_of(3, 5, 128, HeadCounts::powers_of_two).heads, 8);
  EXPECT_EQ(pack_of(3, 5, 128, HeadCounts::powers_of_two).rows, 16);
  EXPECT_EQ(pack_of(1, 150, 128, HeadCounts::powers_of_two).heads, 128);
  EXPECT_EQ(pack_of(3, 1, 64, HeadCounts::powers_of_two).rows, 64);
}

TEST(CudaPack, NoPackIsBetter) {
  for (const int block_rows : {64, 128, 192})
    for (const index_t group : {1, 2, 3, 4, 5, 7, 8, 16, 150})
      for (index_t q_rows = 1; q_rows < 1600; q_rows += 1 + q_rows / 16) {
        SCOPED_TRACE(std::to_string(q_rows) + " x " + std::to_string(group));
        const Pack pack = pack_of(q_rows, group, block_rows, HeadCounts::all);
        ASSERT_LE(pack.heads * pack.rows, block_rows);
        ASSERT_LE(pack.heads, group);
        const index_t taken = blocks(pack, q_rows, group), unpacked = quotient_up(q_rows, block_rows) * group;
        ASSERT_TRUE(pack.heads == 1 || 8 * taken <= 7 * unpacked);
        for (int heads = 1; heads <= std::min<index_t>(group, block_rows); ++heads) {
          const index_t others = blocks({heads, block_rows / heads}, q_rows, group);
          ASSERT_TRUE(taken <= others || 8 * others > 7 * unpacked) << heads << " heads";
        }
        if (block_rows == 192) continue;
        const Pack powers = pack_of(q_rows, group, block_rows, HeadCounts::powers_of_two);
        ASSERT_EQ(powers.heads * powers.rows, block_rows);
        ASSERT_EQ(powers.rows & (powers.rows - 1), 0);
        ASSERT_LE(blocks(powers, q_rows, group), unpacked);
      }
}

// Every query of every head is one row of one block, and is among those that its rows may be.
TEST(CudaPack, RowsOfAllBlocksAreAllQueries) {
  for (const int block_rows : {64, 192})
    for (const index_t group : {1, 3, 5, 8})
      for (const index_t q_rows : {1, 7, 61, 211}) {
        const Pack pack = pack_of(q_rows, group, block_rows, HeadCounts::all);
        cuda::AttendParams a{};
        a.q_rows = q_rows;
        a.heads_a_kv = group;
        a.all_heads = 2 * group;
        a.group_rows = pack.rows;
        a.group_heads = pack.heads;
        a.packs_a_kv = quotient_up(group, pack.heads);
        std::set<index_t> found;
        for (index_t first = 0; first < q_rows; first += pack.rows)
          for (index_t n = 0; n < cuda::all_packs(a); ++n) {
            const auto rows = cuda::block_rows_of(a, {first, 0, 0, first + 1000}, n);
            ASSERT_LE(rows.end(), block_rows);
            for (int t = 0; t < block_rows; ++t) {
              const index_t at = rows.at(t, q_rows);
              ASSERT_EQ(at < 0, rows.state_at(t, q_rows) < 0);
              if (at < 0) continue;
              ASSERT_LT(t, rows.end());
              ASSERT_TRUE(found.insert(at).second);
              ASSERT_EQ(at, rows.head_at(t) * q_rows + rows.query_at(t));
              ASSERT_EQ(rows.state_at(t, q_rows), at + 1000);
              ASSERT_EQ(rows.head_at(t) / group, rows.head / group);
              const auto queries = rows.queries(t / 64 * 64, 64);
              ASSERT_LE(queries.first, rows.query_at(t) - first);
              ASSERT_GE(queries.last, rows.query_at(t) - first);
              ASSERT_LT(queries.last, rows.valid);
            }
          }
        ASSERT_EQ(static_cast<index_t>(found.size()), 2 * group * q_rows);
      }
}

class CudaPacked : public EveryChapter {
 protected:
  Result run(const Problem& problem, const Inputs& inputs, const Blocks& blocks = {},
             Ending ending = Ending::last_block) const {
    return run_unsplit(GetParam(), problem, inputs, blocks, ending);
  }
};
// The plain chapter does not pack.
INSTANTIATE_TEST_SUITE_P(All, CudaPacked,
                         ::testing::ValuesIn(std::vector(kChapters + 1, std::end(kChapters))));

// Shards of a ring of few queries: prime, and around the rows of a pack and of a warpgroup. Two KV heads and
// two batches, so that heads after a group are somebody else's.
TEST_P(CudaPacked, FewQueriesOfEveryGroup) {
  unsigned seed = 700;
  for (const index_t group : {2, 3, 4, 5, 7, 8, 16})
    for (const index_t q_rows : {1, 5, 13, 37, 67}) {
      if (group * q_rows > 300) continue;
      SCOPED_TRACE(std::to_string(q_rows) + " queries, groups of " + std::to_string(group));
      const index_t keys = 163, dim = seed % 3 == 0 ? 100 : 20;  // 128 or 192 rows a block in chapter 3
      const auto tiles = seed % 4 == 0   ? full_tiles(q_rows, keys)
                         : seed % 4 == 1 ? causal_tiles(q_rows, keys)
                         : seed % 4 == 2 ? window_tiles(q_rows, keys, 90, 3)
                                         : random_grid(q_rows, keys, seed);
      const Problem p = problem_of({2, 2 * group, 2, dim, 12}, dtype(), q_rows, keys, tiles);
      const Inputs in = random_inputs(p, ++seed);
      expect_accurate(run(p, in, blocks_of(139, keys), seed % 2 == 0 ? Ending::last_block : Ending::finish),
                      p, in);
    }
}

// More heads a KV head than rows of a block: 150 of one query each.
TEST_P(CudaPacked, MoreHeadsThanRows) {
  const Problem p = problem_of({1, 150, 1, 16, 16}, dtype(), 1, 37, full_tiles(1, 37));
  const Inputs in = random_inputs(p, 45);
  expect_accurate(run(p, in), p, in);
}

// Several groups of rows, each of several heads: bands and documents are those of the queries, not of the
// rows of a block. Every width of tile.
TEST_P(CudaPacked, MasksOverManyGroupsOfRows) {
  struct Case {
    index_t group, q_rows, dim;
  };
  for (const Case c : {Case{8, 65, 64}, {5, 139, 128}, {3, 201, 40}, {7, 83, 200}})
    for (const auto& tiles :
         {causal_tiles(c.q_rows, 211), window_tiles(c.q_rows, 211, 40, 10), random_grid(c.q_rows, 211, 9)}) {
      SCOPED_TRACE(std::to_string(c.q_rows) + " queries, groups of " + std::to_string(c.group));
      const Problem p = problem_of({1, c.group, 1, c.dim, c.dim}, dtype(), c.q_rows, 211, tiles);
      const Inputs in = random_inputs(p, 71);
      expect_accurate(run(p, in), p, in);
    }
}

// NaN in all queries of a head is that head's alone, whoever shares its blocks.
TEST_P(CudaPacked, HeadsDoNotTouchOneAnother) {
  for (const index_t q_rows : {5, 41}) {
    const Problem p = problem_of({1, 6, 2, 12, 20}, dtype(), q_rows, 97, causal_tiles(q_rows, 97));
    const Inputs in = random_inputs(p, 72);
    const Result clean = run(p, in);
    for (const index_t head : {0, 2, 3}) {
      Inputs bad = in;
      for (index_t i = 0; i < q_rows; ++i)
        bad.q.set(bad.q.index(0, i, head, 3), std::numeric_limits<double>::quiet_NaN());
      const Result dirty = run(p, bad);
      for (index_t i = 0; i < q_rows; ++i)
        for (index_t h = 0; h < 6; ++h)
          for (index_t e = 0; e < 20; ++e) {
            const std::size_t at = clean.out.index(0, i, h, e);
            if (h == head)
              ASSERT_TRUE(std::isnan(dirty.out.get(at))) << i << " head " << h;
            else
              ASSERT_EQ(dirty.out.get(at), clean.out.get(at)) << i << " head " << h;
          }
    }
  }
}

// What packing is for: the heads of a group take as many products as one head alone of all their queries.
TEST_P(CudaPacked, HeadsOfAGroupShareTheProducts) {
  const auto products = [this](index_t heads, index_t kv, index_t q_rows) {
    const Problem p = problem_of({1, heads, kv, 128, 128}, dtype(), q_rows, 256, full_tiles(q_rows, 256));
    const Inputs in = random_inputs(p, 73);
    simt::stats().reset();
    run(p, in);
    return simt::stats().mma.load() + simt::stats().wgmma.load();
  };
  EXPECT_EQ(products(8, 1, 16), products(1, 1, 128));
  EXPECT_EQ(products(3, 1, 29), products(1, 1, 128));
  EXPECT_EQ(products(8, 8, 16), 8 * products(1, 1, 16));  // nobody to share with
}

}  // namespace
}  // namespace ringattn::test
