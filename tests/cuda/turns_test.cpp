// The order in which blocks of threads add to dq: the numbers that the host gives out, and that nothing but
// them decides about the bits.
#include <gtest/gtest.h>

#include <map>

#include "kernels/cuda/turns.h"
#include "tests/cuda/support.h"
#include "tests/simt/config.h"

namespace ringattn::test {
namespace {

using cuda::Group, cuda::kTurnRows, cuda::Piece, cuda::Schedule, cuda::TurnList, cuda::TurnRun;

constexpr int kGroupRows = 128;

// Rows [begin, end) of a block of queries that a group visits.
struct Visit {
  index_t begin, end;
  int turn;
  bool operator==(const Visit&) const = default;
};
// Of one group, in its order, as the warp reads them that adds to dq.
std::vector<Visit> visits_of(const TurnList& list, std::size_t group) {
  std::vector<Visit> visits;
  for (int i = list.first_runs[group]; i < list.first_runs[group + 1]; ++i) {
    const TurnRun& run = list.runs[static_cast<std::size_t>(i)];
    for (index_t query = (run.end - 1) / kTurnRows * kTurnRows; query + kTurnRows > run.begin;
         query -= kTurnRows)
      visits.push_back(
          {std::max<index_t>(query, run.begin), std::min<index_t>(query + kTurnRows, run.end), run.turn});
  }
  return visits;
}

// All visits of all groups are those of the pieces, from the last to the first, and to each block of queries
// they have the turns 0, 1, 2, ...
void expect_turns(const std::vector<Tile>& tiles, index_t q_rows, index_t k_rows) {
  const Schedule schedule = cuda::key_schedule(tiles, q_rows, k_rows, kGroupRows);
  const TurnList list = cuda::turns_of(schedule, q_rows);
  std::map<index_t, int> turns;
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    std::vector<Visit> expected;
    for (index_t p = group.pieces - 1; p >= 0; --p) {
      const Piece& piece = schedule.pieces[static_cast<std::size_t>(group.first_piece + p)];
      for (index_t block = (piece.end - 1) / kTurnRows; block >= piece.begin / kTurnRows; --block)
        expected.push_back({std::max(block * kTurnRows, piece.begin),
                            std::min(block * kTurnRows + kTurnRows, piece.end), turns[block]++});
    }
    ASSERT_EQ(visits_of(list, g), expected) << "group " << g;
  }
}

TEST(CudaTurns, VisitsToABlockAreNumberedWithoutGaps) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    expect_turns(random_grid(701, 1103, seed), 701, 1103);
    expect_turns(random_documents(1009, seed), 1009, 1009);
    expect_turns(window_tiles(997, 1013, 100 + static_cast<index_t>(seed) * 7, 30), 997, 1013);
  }
  expect_turns({}, 5, 5);
}

// The example of turns.h, in groups of 128 keys.
TEST(CudaTurns, ACausalMaskTakesOneRunAGroup) {
  const Schedule schedule = cuda::key_schedule(causal_tiles(1024, 1024), 1024, 1024, kGroupRows);
  const TurnList list = cuda::turns_of(schedule, 1024);
  ASSERT_EQ(list.runs.size(), 8u);
  for (int group = 0; group < 8; ++group) {
    const auto g = static_cast<std::size_t>(group);
    EXPECT_EQ(list.first_runs[g], group);
    EXPECT_EQ(list.runs[g].begin, 128 * group);
    EXPECT_EQ(list.runs[g].end, 1024);
    EXPECT_EQ(list.runs[g].turn, group);
  }
}

TEST(CudaTurns, TheOrderOfTheTilesDecidesNothing) {
  std::vector<Tile> tiles = random_grid(701, 1103, 3);
  const auto all_visits = [&] {
    const Schedule schedule = cuda::key_schedule(tiles, 701, 1103, kGroupRows);
    const TurnList list = cuda::turns_of(schedule, 701);
    std::vector<std::vector<Visit>> visits;
    for (std::size_t g = 0; g < schedule.groups.size(); ++g) visits.push_back(visits_of(list, g));
    return visits;
  };
  const auto first = all_visits();
  std::ranges::reverse(tiles);
  EXPECT_EQ(first, all_visits());
}

// On the harness: seven groups of keys that all add to the same rows, two heads that share their keys, more
// blocks of threads than run at once; one after the other, several in turns, several at the same time.
TEST(CudaTurns, BitsDoNotDependOnWhichBlocksRunAtOnce) {
  Problem p = problem_of({1, 2, 1, 20, 12}, DType::bf16, 131, 811, random_grid(131, 811, 3));
  const BackwardInputs in = random_backward_inputs(p, 9);
  const simt::Config before = simt::config();
  const Gradients first = run_backward_cuda("sm_90a", p, in);
  expect_accurate(first, p, in);
  for (const unsigned resident : {1u, 2u, 7u}) {
    SCOPED_TRACE(resident);
    simt::config().resident = resident;
    simt::config().workers = 1 + resident % 3;
    simt::config().seed = 70 + resident;
    std::ranges::reverse(p.tiles);
    EXPECT_TRUE(same_bits(first, run_backward_cuda("sm_90a", p, in)));
  }
  simt::config() = before;
}

// Sums of another rank that come while dk and dv are formed: the same bits as added to them at once.
TEST(CudaTurns, SumsThatArriveLateAreAddedToAllTheSame) {
  const Problem p = problem_of({1, 2, 1, 20, 12}, DType::bf16, 71, 301, causal_tiles(71, 301));
  const BackwardInputs in = random_backward_inputs(p, 4);
  const Gradients whole = run_backward_cuda("sm_90a", p, in, {}, First::given);
  const Gradients late = run_backward_cuda("sm_90a", p, in, {}, First::late);
  EXPECT_TRUE(same_bits(whole, late));
}

}  // namespace
}  // namespace ringattn::test
