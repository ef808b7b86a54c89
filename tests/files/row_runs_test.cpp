#include "launch/files/row_runs.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;

std::vector<ByteRun> runs(const std::vector<index_t>& shape, std::size_t axis, std::size_t bytes,
                          const std::vector<Segment>& segments) {
  std::vector<ByteRun> found;
  for_each_run(shape, axis, bytes, segments, [&](const ByteRun& run) { found.push_back(run); });
  return found;
}

TEST(RowRuns, StridedRowsAreRunsOfTheirOwn) {
  EXPECT_EQ(runs({2, 5, 3}, 1, 4, {{0, 2, 3}}),
            (std::vector<ByteRun>{{0, 0, 12}, {36, 12, 12}, {60, 24, 12}, {96, 36, 12}}));
}

TEST(RowRuns, DenseSegmentsAreOneRunPerBatch) {
  EXPECT_EQ(runs({2, 7, 3}, 1, 2, {{1, 2, 1}, {5, 1, 1}, {6, 0, 1}}),
            (std::vector<ByteRun>{{6, 0, 12}, {30, 12, 6}, {48, 18, 12}, {72, 30, 6}}));
}

TEST(RowRuns, EmptyTensorsAndShardsHaveNoRuns) {
  EXPECT_TRUE(runs({2, 0, 3}, 1, 4, {}).empty());
  EXPECT_TRUE(runs({2, 5, 0}, 1, 4, {{0, 5, 1}}).empty());
  EXPECT_TRUE(runs({0, 5, 3}, 1, 4, {{0, 5, 1}}).empty());
  EXPECT_TRUE(runs({2, 5, 3}, 1, 4, {{0, 0, 2}}).empty());
}

TEST(RowRuns, ShardsOfEveryLayoutCoverEachByteOnceAndInOrder) {
  for (const index_t rows : {1, 2, 5, 13, 31}) {
    for (const std::size_t axis : {std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
      std::vector<index_t> shape{2, 3, 2, 3};
      shape[axis] = rows;
      const index_t total = std::accumulate(shape.begin(), shape.end(), index_t{2}, std::multiplies<>());
      for (const LayoutKind kind : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
        for (const int ranks : {1, 2, 3, 5}) {
          const Layout layout = Layout::make(kind, rows, ranks);
          std::vector<int> seen(static_cast<std::size_t>(total), 0);
          for (int rank = 0; rank < ranks; ++rank) {
            std::uint64_t shard = 0;
            for_each_run(shape, axis, 2, layout.segments(rank), [&](const ByteRun& run) {
              EXPECT_EQ(run.shard, shard);
              shard += run.bytes;
              for (std::uint64_t i = 0; i < run.bytes; ++i) ++seen.at(run.tensor + i);
            });
            EXPECT_EQ(shard, shard_bytes("x", shape, axis, 2, layout.segments(rank)));
          }
          EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), total);
        }
      }
    }
  }
}

TEST(RowRuns, SegmentsThatLeaveTheTensorAreRefusedByName) {
  const index_t huge = std::numeric_limits<index_t>::max();
  for (const Segment& s : std::vector<Segment>{{0, 6, 1},
                                               {5, 1, 1},
                                               {-1, 2, 1},
                                               {0, 3, 3},
                                               {0, 2, 0},
                                               {4, 2, -1},
                                               {0, -1, 1},
                                               {1, huge, 1},
                                               {0, 3, huge},
                                               {huge, huge, huge}}) {
    const std::string message = test::message_of<UsageError>([&] {
      shard_bytes("q.npy", std::vector<index_t>{2, 5, 3}, 1, 4, std::span(&s, 1));
    });
    EXPECT_TRUE(has(message, "q.npy: segment {begin " + std::to_string(s.begin))) << message;
    EXPECT_TRUE(has(message, "leaves the 5 rows"));
  }
}

TEST(RowRuns, RowsHeldTwiceAndMissingAxesAreRefused) {
  const std::vector<index_t> shape{2, 5, 3};
  const std::vector<Segment> twice{{0, 5, 1}, {0, 1, 1}};
  EXPECT_TRUE(
      has(test::message_of<UsageError>([&] { shard_bytes("q.npy", shape, 1, 4, twice); }), "more rows"));
  EXPECT_TRUE(has(test::message_of<UsageError>([&] { shard_bytes("q.npy", shape, 3, 4, {}); }), "no axis 3"));
}

TEST(RowRuns, OffsetsPassFourGiB) {
  // 2^20 rows of 3 * 4096 * 4 bytes: the last one begins at 51,539,558,400.
  const std::vector<index_t> shape{1, 1 << 20, 3, 4096};
  EXPECT_EQ(runs(shape, 1, 4, {{(1 << 20) - 1, 1, 1}}), (std::vector<ByteRun>{{51'539'558'400, 0, 49'152}}));
}

}  // namespace
}  // namespace ringattn
