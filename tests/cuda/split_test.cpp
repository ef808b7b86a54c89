// Keys split over blocks of threads: the schedule's parts, and that the merged answer is the oracle's
// whatever the number of parts.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/cuda/split_kernel.h"
#include "tests/cuda/support.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

using cuda::Group, cuda::Piece, cuda::Schedule, cuda::SplitRule;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr SplitRule kNever{.blocks = 0, .columns = 1};
// As many parts as there are steps, and half as many.
constexpr SplitRule kEveryStep{.blocks = 1 << 20, .columns = 1}, kTwoSteps{.blocks = 1 << 20, .columns = 128};

Schedule schedule_of_steps(const std::vector<index_t>& steps) {
  Schedule schedule;
  for (std::size_t g = 0; g < steps.size(); ++g) {
    schedule.groups.push_back({.first_row = static_cast<index_t>(16 * g),
                               .first_piece = static_cast<index_t>(g),
                               .pieces = 1,
                               .first_state = static_cast<index_t>(16 * g)});
    schedule.pieces.push_back({0, steps[g] * cuda::kSplitColumns, -cuda::kSplitColumns, 0, 0, 16});
  }
  return schedule;
}

index_t columns_of(const Schedule& schedule, const Group& group) {
  index_t sum = 0;
  for (index_t p = 0; p < group.pieces; ++p) {
    const Piece& piece = schedule.pieces[static_cast<std::size_t>(group.first_piece + p)];
    sum += piece.end - piece.begin;
  }
  return sum;
}
std::vector<index_t> steps_of_parts(const Schedule& schedule) {
  std::vector<index_t> steps;
  for (const Group& group : schedule.groups)
    steps.push_back(columns_of(schedule, group) / cuda::kSplitColumns);
  return steps;
}

TEST(CudaSplitSchedule, PartsAreAsEvenAsStepsAllow) {
  const auto example = split(schedule_of_steps({12, 12, 5}), 1, 16, {.blocks = 7, .columns = 1});
  ASSERT_TRUE(example);
  EXPECT_EQ(steps_of_parts(*example), (std::vector<index_t>{4, 4, 4, 4, 4, 4, 5}));
  const auto one = split(schedule_of_steps({100}), 1, 16, {.blocks = 7, .columns = 1});
  ASSERT_TRUE(one);
  EXPECT_EQ(steps_of_parts(*one), (std::vector<index_t>{14, 14, 14, 15, 14, 14, 15}));
}

TEST(CudaSplitSchedule, NothingIsCutWhereItDoesNotPay) {
  EXPECT_FALSE(split({}, 1, 16, kEveryStep));
  EXPECT_FALSE(split(schedule_of_steps({1, 1}), 1, 16, kEveryStep));                       // steps are whole
  EXPECT_FALSE(split(schedule_of_steps({8, 8}), 4, 16, {.blocks = 8, .columns = 1}));      // enough blocks
  EXPECT_FALSE(split(schedule_of_steps({8, 8}), 4, 16, {.blocks = 7, .columns = 1}));      // more than enough
  EXPECT_FALSE(split(schedule_of_steps({8, 8}), 1, 16, {.blocks = 100, .columns = 512}));  // too short
  EXPECT_TRUE(split(schedule_of_steps({9, 8}), 1, 16, {.blocks = 100, .columns = 512}));
  EXPECT_TRUE(split(schedule_of_steps({8, 2}), 4, 16, {.blocks = 12, .columns = 1}));
}

// Every column of every group in one part, in order; parts within the rule, merges that name them.
TEST(CudaSplitSchedule, PartsHoldWhatTheGroupsHeld) {
  for (unsigned seed = 1; seed <= 20; ++seed)
    for (const index_t blocks : {9, 30, 100}) {
      const Schedule whole = cuda::query_schedule(random_grid(131, 997, seed), 131, 997, 16);
      const auto parts = split(whole, 1, 16, {.blocks = blocks, .columns = 100});
      if (!parts) continue;
      ASSERT_LE(static_cast<index_t>(parts->groups.size()), blocks);
      ASSERT_EQ(parts->merges.size(), whole.groups.size());
      std::size_t part = 0;
      for (std::size_t g = 0; g < whole.groups.size(); ++g) {
        const Group& group = whole.groups[g];
        const cuda::Merge& merge = parts->merges[g];
        ASSERT_EQ(merge.first_row, group.first_row);
        ASSERT_EQ(merge.first_state, static_cast<index_t>(16 * part));
        auto piece = whole.pieces.begin() + group.first_piece;  // that comes next, from `column` on
        index_t column = piece->begin;
        for (index_t n = 0; n < merge.parts; ++n, ++part) {
          const Group& at = parts->groups[part];
          ASSERT_EQ(at.first_row, group.first_row);
          ASSERT_EQ(at.first_state, static_cast<index_t>(16 * part));
          ASSERT_GT(at.pieces, 0);
          for (index_t p = 0; p < at.pieces; ++p) {
            const Piece& cut = parts->pieces[static_cast<std::size_t>(at.first_piece + p)];
            ASSERT_EQ(cut.begin, column);
            ASSERT_LT(cut.begin, cut.end);
            ASSERT_LE(cut.end, piece->end);
            ASSERT_EQ(std::tie(cut.lo, cut.hi, cut.row_begin, cut.row_end),
                      std::tie(piece->lo, piece->hi, piece->row_begin, piece->row_end));
            column = cut.end;
            if (column < piece->end) continue;
            if (++piece != whole.pieces.end()) column = piece->begin;
          }
        }
        ASSERT_EQ(piece - whole.pieces.begin(), group.first_piece + group.pieces);
      }
      ASSERT_EQ(part, parts->groups.size());
    }
}

// Tiles side by side that begin at the same key, in either order.
TEST(CudaSplitSchedule, CutsDoNotDependOnTheOrderOfTiles) {
  std::vector<Tile> tiles;
  for (index_t row = 0; row < 16; row += 3)
    tiles.push_back({{row, std::min<index_t>(row + 3, 16)}, {0, 64 * (row + 1)}, {}});
  const auto ends = [&tiles] {
    const auto parts = split(cuda::query_schedule(tiles, 16, 1100, 16), 1, 16, kTwoSteps);
    std::vector<std::pair<index_t, int>> cuts;
    for (const Piece& piece : parts.value().pieces) cuts.emplace_back(piece.end, piece.row_begin);
    return cuts;
  };
  const auto before = ends();
  std::ranges::reverse(tiles);
  EXPECT_EQ(ends(), before);
}

class CudaSplit : public EveryChapter {
 protected:
  Result run_split(const SplitRule& rule, const Problem& problem, const Inputs& inputs,
                   const Blocks& blocks = {}, Ending ending = Ending::last_block) const {
    return run_made(
        [&](const DeviceStream& stream) {
          return cuda::make_split_kernel(config_of(problem, GetParam()), stream.get(), rule);
        },
        problem, inputs, blocks, ending);
  }
};
INSTANTIATE_TEST_SUITE_P(All, CudaSplit, ::testing::ValuesIn(kChapters));

TEST_P(CudaSplit, FewQueriesOfEveryMaskAndGroup) {
  struct Heads {
    index_t q, kv;
  };
  const index_t keys = 331;
  unsigned seed = 500;
  for (const index_t q_rows : {1, 5, 16, 19})
    for (const Heads h : {Heads{8, 1}, {6, 2}, {2, 2}})
      for (const auto& tiles :
           {full_tiles(q_rows, keys), causal_tiles(q_rows, keys), window_tiles(q_rows, keys, 200, 0)}) {
        SCOPED_TRACE(std::to_string(q_rows) + " queries, heads " + std::to_string(h.q) + "/" +
                     std::to_string(h.kv));
        const Problem p = problem_of({2, h.q, h.kv, 20, 28}, dtype(), q_rows, keys, tiles);
        const Inputs in = random_inputs(p, ++seed);
        expect_accurate(run_split(seed % 2 == 0 ? kEveryStep : kTwoSteps, p, in), p, in);
      }
}

// More parts than a warp has lanes, and widths around those of a warp's loads.
TEST_P(CudaSplit, ManyPartsOfEveryWidth) {
  for (const index_t dim : {1, 64, 130, 256}) {
    if (!can(dim, dim)) continue;
    const index_t keys = dim == 1 ? 2203 : 331;
    const Problem p = problem_of({1, 2, 1, dim, dim}, dtype(), 3, keys, causal_tiles(3, keys));
    const Inputs in = random_inputs(p, 51);
    expect_accurate(run_split(kEveryStep, p, in), p, in);
  }
}

// State is carried from blocks that are split to those that are not, and rows see nothing in many parts.
TEST_P(CudaSplit, TilesAndBlocksInAnyOrder) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    const Problem grid = problem_of({1, 3, 1, 10, 16}, dtype(), 37, 401, random_grid(37, 401, seed));
    const Inputs in = random_inputs(grid, seed);
    Blocks blocks = {{270, 401}, {0, 250}, {250, 270}};
    expect_accurate(run_split(kEveryStep, grid, in, blocks), grid, in);
    expect_accurate(run_split(kTwoSteps, grid, in, blocks_of(190, 401), Ending::finish), grid, in);
    const Problem documents = problem_of({1, 3, 1, 10, 16}, dtype(), 211, 211, random_documents(211, seed));
    const Inputs document_in = random_inputs(documents, seed);
    expect_accurate(run_split(kEveryStep, documents, document_in), documents, document_in);
  }
}

TEST_P(CudaSplit, RowsThatSeeNothing) {
  const Problem p = problem_of({1, 2, 1, 8, 8}, dtype(), 9, 300, {{{2, 5}, {70, 290}, {100, 220}}});
  const Inputs in = random_inputs(p, 52);
  const Result result = run_split(kEveryStep, p, in);
  expect_accurate(result, p, in);
  EXPECT_EQ(result.lse[0], -kInf);
  EXPECT_EQ(result.out.get(0), 0.0);
}

TEST_P(CudaSplit, LargeLogitsAndEveryScale) {
  for (const double scale : {-0.3, 0.0, 3.7, 1000.0}) {
    Problem p = problem_of({1, 2, 1, 24, 20}, dtype(), 4, 333, causal_tiles(4, 333));
    p.scale = scale;
    const Inputs in = random_inputs(p, 53, 3);
    expect_accurate(run_split(kEveryStep, p, in, blocks_of(200, 333)), p, in);
  }
}

// Scores of -inf in whole parts, first, in between and last; rows that have nothing else.
TEST_P(CudaSplit, PartsOfMinusInfinity) {
  const Problem p = problem_of({1, 1, 1, 2, 3}, dtype(), 5, 320, causal_tiles(5, 320));
  for (const Range bad : {Range{0, 128}, {64, 192}, {192, 320}, {0, 320}}) {
    Inputs in = random_inputs(p, 54);
    for (index_t i = 0; i < 5; ++i) in.q.set(in.q.index(0, i, 0, 0), 1);
    for (index_t j = bad.begin; j < bad.end; ++j) in.k.set(in.k.index(0, j, 0, 0), -kInf);
    expect_accurate(run_split(kEveryStep, p, in), p, in);
    expect_accurate(run_split(kEveryStep, p, in, blocks_of(192, 320)), p, in);
  }
}

TEST_P(CudaSplit, NanReachesWhoSeesItAndNoFurther) {
  const index_t rows = 7, keys = 261;
  const Problem p = problem_of({1, 2, 1, 12, 17}, dtype(), rows, keys,
                               {{{0, 3}, {0, 150}, {}}, {{3, rows}, {110, keys}, {.hi = 250}}});
  const Inputs in = random_inputs(p, 55);
  const Result clean = run_split(kEveryStep, p, in);
  for (const double bad : {kNan, kInf})
    for (const index_t j : {0, 64, 111, 149, 255}) {
      SCOPED_TRACE(j);
      Inputs dirty = in;
      dirty.v.set(dirty.v.index(0, j, 0, 16), bad);
      const Result values = run_split(kEveryStep, p, dirty);
      dirty = in;
      dirty.k.set(dirty.k.index(0, j, 0, 11), kNan);
      const Result scores = run_split(kEveryStep, p, dirty);
      for (index_t i = 0; i < rows; ++i)
        for (index_t h = 0; h < 2; ++h)
          for (index_t e = 0; e < 17; ++e) {
            const std::size_t at = clean.out.index(0, i, h, e);
            if (p.visible(i, j)) {
              ASSERT_TRUE(std::isnan(scores.out.get(at))) << i << " " << e;
            } else {
              ASSERT_EQ(scores.out.get(at), clean.out.get(at)) << i << " " << e;
            }
            if (p.visible(i, j) && e == 16) {
              ASSERT_FALSE(std::isfinite(values.out.get(at))) << i;
            } else {
              ASSERT_EQ(values.out.get(at), clean.out.get(at)) << i << " " << e;
            }
          }
    }
}

TEST_P(CudaSplit, BitsAreThoseOfTheProblemAlone) {
  Problem p = problem_of({1, 4, 2, 12, 20}, dtype(), 29, 401, random_grid(29, 401, 3));
  const Inputs in = random_inputs(p, 9);
  const Result first = run_split(kEveryStep, p, in, blocks_of(300, 401));
  const simt::Config before = simt::config();
  simt::config().seed = 77;  // another order of all blocks of threads
  EXPECT_TRUE(same_bits(first, run_split(kEveryStep, p, in, blocks_of(300, 401), Ending::finish)));
  simt::config() = before;
  std::ranges::reverse(p.tiles);
  EXPECT_TRUE(same_bits(first, run_split(kEveryStep, p, in, blocks_of(300, 401))));
  EXPECT_FALSE(same_bits(first, run_split(kNever, p, in, blocks_of(300, 401))));
}

// The device's own rule: one query of a long block is split, and not where keys are few.
TEST_P(CudaSplit, TheDeviceSaysWhenItPays) {
  const auto unlike_unsplit = [&](index_t q_rows, index_t keys) {
    const Problem p = problem_of({1, 2, 1, 8, 8}, dtype(), q_rows, keys, full_tiles(q_rows, keys));
    const Inputs in = random_inputs(p, 56);
    const Result usual = run_cuda(p, in);
    expect_accurate(usual, p, in);
    return !same_bits(usual, run_split(kNever, p, in));
  };
  EXPECT_TRUE(unlike_unsplit(1, 2000));
  EXPECT_FALSE(unlike_unsplit(1, 500));
}

}  // namespace
}  // namespace ringattn::test
