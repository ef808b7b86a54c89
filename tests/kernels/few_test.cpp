// Few queries: the path of kernels/cpu/few.h, for whose rows every key or column has its own lane.
#include "kernels/cpu/few.h"

#include <cmath>
#include <limits>

#include "src/error.h"
#include "tests/kernels/every_isa.h"
#include "tests/kernels/random_tiles.h"

namespace ringattn::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

bool is_few(const std::vector<Tile>& tiles, index_t q_rows, index_t k_rows) {
  return cpu::few_rows(cpu::Schedule(tiles, q_rows, k_rows), q_rows, cpu::kFewRows).has_value();
}

// The baseline is slow: it gets every third problem.
bool skipped(const std::string& isa, unsigned index) {
  return isa == cpu_isas().back() && cpu_isas().size() > 1 && index % 3 != 0;
}

TEST(FewRows, AreCountedByWhatSeesSomething) {
  const index_t most = cpu::kFewRows;
  EXPECT_TRUE(is_few(full_tiles(most, 100), most, 100));
  EXPECT_FALSE(is_few(full_tiles(most + 1, 100), most + 1, 100));
  // Rows 40 .. 59 lie in two groups of 48; the others see nothing here.
  EXPECT_TRUE(is_few({{{40, 60}, {0, 100}, {}}}, 1000, 100));
  EXPECT_FALSE(is_few({{{40, 60}, {0, 100}, {}}, {{100, 117}, {0, 100}, {}}}, 1000, 100));
  // Of 500 rows the band shows keys to 10.
  EXPECT_TRUE(is_few({{{0, 500}, {0, 100}, {.lo = -kUnbounded, .hi = -490}}}, 500, 100));
  EXPECT_TRUE(is_few({}, 500, 100));
}

TEST(FewRows, HoldTheKeysOfEachRowInOrder) {
  // Tiles in any order; the first two meet at key 30 and become one range.
  const std::vector<Tile> tiles = {
      {{2, 4}, {30, 50}, {}}, {{2, 4}, {10, 30}, {}}, {{3, 5}, {60, 90}, {.hi = 60}}, {{0, 2}, {0, 0}, {}}};
  const auto rows = cpu::few_rows(cpu::Schedule(tiles, 7, 100), 7, 3);
  ASSERT_TRUE(rows.has_value());
  ASSERT_EQ(rows->size(), 3u);
  EXPECT_EQ((*rows)[0].lane, 2);
  EXPECT_EQ((*rows)[0].keys, (std::vector<Range>{{10, 50}}));
  EXPECT_EQ((*rows)[1].keys, (std::vector<Range>{{10, 50}, {60, 64}}));  // j <= 60 + 3
  EXPECT_EQ((*rows)[2].keys, (std::vector<Range>{{60, 65}}));
}

TEST_P(EveryIsa, FewQueriesOfEveryShape) {
  struct Shape {
    index_t rows, heads, heads_kv, dim, dim_v;
  };
  unsigned index = 0;
  for (const Shape& s : {Shape{1, 1, 1, 1, 1},
                         {1, 8, 1, 128, 128},
                         {2, 3, 3, 7, 5},
                         {3, 2, 1, 64, 80},
                         {5, 5, 1, 80, 64},
                         {7, 4, 2, 256, 8},
                         {11, 7, 1, 33, 130},
                         {13, 2, 2, 128, 256},
                         {16, 8, 8, 20, 12},
                         {16, 6, 2, 64, 63},
                         {23, 1, 1, 17, 9},
                         {36, 3, 1, 40, 41},
                         {37, 3, 1, 40, 41},
                         {1, 2, 1, 512, 512}})
    for (const DType dtype : kDtypes)
      for (const index_t keys : {61, 523}) {
        if (skipped(GetParam(), index++)) continue;
        SCOPED_TRACE(text(dtype) + " rows " + std::to_string(s.rows) + " dim " + std::to_string(s.dim) +
                     " keys " + std::to_string(keys));
        const Problem p =
            problem_of({2, s.heads, s.heads_kv, s.dim, s.dim_v}, dtype, s.rows, keys,
                       index % 2 ? causal_tiles(s.rows, keys) : window_tiles(s.rows, keys, 47, 1));
        const Inputs in = random_inputs(p, index);
        expect_accurate(run_cpu(p, in, GetParam(), {}, 2), p, in);
      }
}

TEST_P(EveryIsa, FewQueriesOfEveryLength) {
  unsigned index = 0;
  for (const index_t keys :
       {1, 2, 7, 8, 9, 15, 63, 64, 65, 255, 256, 257, 511, 513, 2039, 2047, 2048, 2049, 2053, 4099, 4999})
    for (const index_t rows : {1, 3}) {
      if (skipped(GetParam(), index++)) continue;
      for (const auto& tiles : {full_tiles(rows, keys), causal_tiles(rows, keys),
                                window_tiles(rows, keys, 300, -1), window_tiles(rows, keys, 2100, 0)}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(keys));
        const DType dtype = kDtypes[index % 3];
        const Problem p = problem_of({1, 2, 1, 12, 9}, dtype, rows, keys, tiles);
        const Inputs in = random_inputs(p, 7);
        expect_accurate(run_cpu(p, in, GetParam(), {}, 2), p, in);
      }
    }
}

// Hops: the state is carried from one call to the next, through blocks that show few rows and ones that show
// many (and so take the other path).
TEST_P(EveryIsa, FewQueriesCarryTheirState) {
  for (const DType dtype : kDtypes) {
    const Problem few = problem_of({1, 3, 1, 24, 16}, dtype, 5, 1201, causal_tiles(5, 1201));
    const Inputs in = random_inputs(few, 17, 3);
    for (const index_t rows : {1, 64, 97, 600})
      expect_accurate(run_cpu(few, in, GetParam(), blocks_of(rows, 1201), 3), few, in);
    std::vector<Tile> tiles = {{{0, 60}, {0, 100}, {}},
                               {{41, 60}, {100, 300}, {}},
                               {{0, 60}, {300, 400}, {}},
                               {{7, 8}, {400, 500}, {}}};
    const Problem mixed = problem_of({1, 2, 1, 24, 16}, dtype, 60, 500, tiles);
    const Inputs mixed_in = random_inputs(mixed, 18, 3);
    expect_accurate(run_cpu(mixed, mixed_in, GetParam(), blocks_of(100, 500), 2), mixed, mixed_in);
  }
}

TEST_P(EveryIsa, FewQueriesOfManyTiles) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const index_t rows = 1 + static_cast<index_t>(seed) * 2, keys = 701;
    const Problem p =
        problem_of({1, 3, 1, 10, 16}, kDtypes[seed % 3], rows, keys, random_grid(rows, keys, seed));
    const Inputs in = random_inputs(p, seed);
    expect_accurate(run_cpu(p, in, GetParam(), blocks_of(307, keys), 2), p, in);
  }
}

TEST_P(EveryIsa, FewQueriesOfLargeScores) {
  for (const double deviation : {10.0, 1000.0}) {
    const Problem p = problem_of({1, 2, 1, 64, 64}, DType::f32, 7, 3001, causal_tiles(7, 3001));
    const Inputs in = random_inputs(p, 5, deviation);
    expect_accurate(run_cpu(p, in, GetParam(), blocks_of(2500, 3001)), p, in);
  }
  for (const double slope : {20.0, -20.0}) {  // the maximum rises at every key, or never
    Problem p = problem_of({1, 1, 1, 1, 4}, DType::f32, 3, 1300, full_tiles(3, 1300));
    p.scale = slope;
    const Inputs in{filled(p.dtype, p.q_shape(), 1), key_indices(p.dtype, p.k_shape()),
                    random_tensor(p.dtype, p.v_shape(), 8)};
    expect_accurate(run_cpu(p, in, GetParam()), p, in);
  }
}

// As Forward.a_heavy_first_block_does_not_drown_many_light_keys: one key of weight 1, then many of 2^-26,
// each below half an ulp of it.
TEST_P(EveryIsa, FewQueriesKeepManyLightKeys) {
  const index_t keys = 20'011;
  Problem p = problem_of({1, 1, 1, 1, 1}, DType::f32, 1, keys, full_tiles(1, keys));
  p.scale = std::log(2.0);
  Inputs in{filled(p.dtype, p.q_shape(), 1), filled(p.dtype, p.k_shape(), -26),
            filled(p.dtype, p.v_shape(), 1)};
  in.k.set(0, 0);
  in.v.set(0, 0);
  const Result result = run_cpu(p, in, GetParam());
  const double light = 20'010 * 0x1p-26;
  EXPECT_NEAR(result.out.get(0), light / (1 + light), 2e-4 * light);
}

TEST_P(EveryIsa, FewQueriesDoNotDependOnThreadsNorOnPoll) {
  for (const index_t rows : {1, 2, 17}) {
    const Problem p =
        problem_of({1, 2, 1, 16, 24}, DType::bf16, rows, 9'001, window_tiles(rows, 9'001, 8'000, 0));
    const Inputs in = random_inputs(p, 23);
    const Result one = run_cpu(p, in, GetParam(), blocks_of(6'007, 9'001), 1);
    for (const int threads : {2, 3, 5}) {
      int polls = 0;
      const auto kernel = make_cpu_kernel(config_of(p, GetParam(), threads));
      const Inputs& c = in;
      const Result many =
          run(*kernel, p, c.q.view(), c.k.view(), c.v.view(), blocks_of(6'007, 9'001), [&] { ++polls; });
      EXPECT_TRUE(same_bits(one, many)) << threads << " threads, " << rows << " rows";
      EXPECT_GT(polls, 1);
    }
  }
}

// 35 MB: panels are read in the order of memory, those that are cut by what the row sees, too.
TEST_P(EveryIsa, OneQueryOfABlockThatIsLargerThanCaches) {
  const index_t dim = 128;
  for (const DType dtype : kDtypes) {
    const index_t keys = dtype == DType::f32 ? 34'003 : 68'003;
    const std::vector<Tile> cut = {{{0, 1}, {3, 20'001}, {}},
                                   {{0, 1}, {20'002, 20'003}, {}},
                                   {{0, 1}, {20'007, 20'014}, {}},
                                   {{0, 1}, {20'030, keys - 2}, {}}};
    const Problem p = problem_of({1, 1, 1, dim, dim}, dtype, 1, keys, cut);
    Inputs in = random_inputs(p, 37);
    for (const index_t hidden : {index_t{2}, index_t{20'001}, index_t{20'005}, index_t{20'029}, keys - 1}) {
      in.k.set(in.k.index(0, hidden, 0, 77), kNan);
      in.v.set(in.v.index(0, hidden, 0, 77), kNan);
    }
    expect_accurate(run_cpu(p, in, GetParam(), {}, 2), p, in);
  }
}

// A row's bits are its own: they are the same whatever its neighbours see.
TEST_P(EveryIsa, FewQueriesDoNotDependOnTheirNeighbours) {
  const index_t keys = 5'003;
  const Tile own{{3, 4}, {100, 4'900}, {}};
  const Problem alone = problem_of({1, 4, 2, 24, 16}, DType::f32, 6, keys, {own});
  const Problem among = problem_of({1, 4, 2, 24, 16}, DType::f32, 6, keys,
                                   {own, {{0, 3}, {0, keys}, {.hi = 2'000}}, {{4, 6}, {150, 160}, {}}});
  const Inputs in = random_inputs(alone, 41);
  const Result a = run_cpu(alone, in, GetParam()), b = run_cpu(among, in, GetParam());
  for (index_t h = 0; h < 4; ++h)
    for (index_t e = 0; e < 16; ++e)
      ASSERT_EQ(a.out.get(a.out.index(0, 3, h, e)), b.out.get(b.out.index(0, 3, h, e)));
}

// NaN of a key reaches who sees it and nobody else, though all share a panel.
TEST_P(EveryIsa, NanOfKeysAmongFewQueries) {
  const index_t rows = 9, keys = 600;
  for (const DType dtype : kDtypes)
    for (const auto& tiles : {full_tiles(rows, keys),
                              causal_tiles(rows, keys),
                              window_tiles(rows, keys, 5, 2),
                              {{{0, 4}, {0, 77}, {}}, {{4, rows}, {77, keys}, {}}}}) {
      const Problem p = problem_of({1, 2, 1, 12, 17}, dtype, rows, keys, tiles);
      const Inputs in = random_inputs(p, 31);
      const Result clean = run_cpu(p, in, GetParam());
      for (const index_t j : {0, 76, 77, 591, 594, 599})
        for (const bool in_k : {true, false})
          for (const double bad : {kNan, kInf, -kInf}) {
            SCOPED_TRACE("key " + std::to_string(j) + (in_k ? " k " : " v ") + std::to_string(bad));
            Inputs dirty = in;
            if (in_k) dirty.k.set(dirty.k.index(0, j, 0, 11), bad);
            if (!in_k) dirty.v.set(dirty.v.index(0, j, 0, 16), bad);
            const Result result = run_cpu(p, dirty, GetParam());
            expect_accurate(result, p, dirty);
            for (index_t i = 0; i < rows; ++i)
              for (index_t e = 0; e < 17 && !p.visible(i, j); ++e)
                ASSERT_EQ(result.out.get(result.out.index(0, i, 1, e)),
                          clean.out.get(clean.out.index(0, i, 1, e)));
          }
    }
}

TEST_P(EveryIsa, FewQueriesOfScoresOfMinusInfinity) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, DType::f32, 4, 1'400, causal_tiles(4, 1'400));
  Inputs in = random_inputs(p, 4);
  for (index_t i = 0; i < 4; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
  for (index_t j = 0; j < 1'398; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
  const Result result = run_cpu(p, in, GetParam(), blocks_of(700, 1'400), 2);
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -kInf);  // sees keys 0 .. 1396 only
  EXPECT_EQ(result.out.get(0), 0.0);
  EXPECT_TRUE(std::isfinite(result.lse[2]));
}

// What a former call or backward left in scratch does not matter.
TEST_P(EveryIsa, FewQueriesTakeScratchAsItIs) {
  const Problem p = problem_of({1, 4, 2, 24, 16}, DType::f32, 3, 1'000, causal_tiles(3, 1'000));
  const Inputs in = random_inputs(p, 3);
  Inputs poison = in;
  for (std::size_t i = 0; i < poison.k.size(); ++i) poison.k.set(i, kNan);
  for (std::size_t i = 0; i < poison.v.size(); ++i) poison.v.set(i, kNan);
  const auto kernel = make_cpu_kernel(config_of(p, GetParam(), 2));
  const Result clean = run(*kernel, p, in);
  EXPECT_TRUE(std::isnan(run(*kernel, p, poison).out.get(0)));
  EXPECT_TRUE(same_bits(run(*kernel, p, in), clean));
}

TEST_P(EveryIsa, RowsBesideFewQueriesStayUntouched) {
  const Problem p = problem_of({1, 2, 1, 8, 8}, DType::f32, 200, 100, {{{60, 63}, {0, 100}, {}}});
  const Result result = run_cpu(p, random_inputs(p, 9), GetParam());
  for (index_t i = 0; i < 200; ++i) {
    const bool sees = 60 <= i && i < 63;
    EXPECT_EQ(std::isinf(result.lse[static_cast<std::size_t>(i)]), !sees) << i;
    EXPECT_EQ(result.out.get(result.out.index(0, i, 0, 3)) == 0.0, !sees) << i;
  }
}

}  // namespace
}  // namespace ringattn::test
