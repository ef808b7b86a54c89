// What travels: as many bytes and messages as the plan says, and no size at which a ring of sends locks up.
#include <gtest/gtest.h>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"

namespace ringattn::test {
namespace {

using Json = nlohmann::json;

class PlannedTraffic : public ::testing::TestWithParam<int> {};

// 997 is prime: no two ranks need hold the same number of rows.
TEST_P(PlannedTraffic, IsWhatEveryRankSends) {
  const int ranks = GetParam();
  for (const char* layout : {"contiguous", "zigzag", "striped"}) {
    const Words problem = words(
        "--seqlen 997 --num-heads 6 --num-heads-kv 2 --head-dim 20 --head-dim-v 12 --dtype bf16 --mask causal"
        " --threads 1 --json - --layout " +
        std::string(layout));
    const JobResult plan =
        run_job(Words{local(1, {}).back(), "plan", "--ranks", std::to_string(ranks)} + problem);
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    // A line for the ring and one for each rank.
    const std::vector<Json> planned = reports_of(plan);
    ASSERT_EQ(planned.size(), 1 + static_cast<std::size_t>(ranks));
    const JobResult bench = run_job(local(ranks, Words{"bench", "--iterations", "2"} + problem));
    ASSERT_EQ(bench.exit_code, 0) << bench.err;
    const Json report = report_of(bench);

    EXPECT_TRUE(report.at("check").at("passed").get<bool>());
    ASSERT_EQ(report.at("per_rank").size(), static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      const Json &done = report.at("per_rank").at(r), &meant = planned.at(1 + r);
      EXPECT_EQ(done.at("bytes_sent"), meant.at("bytes_sent")) << layout << ", rank " << r;
      EXPECT_EQ(done.at("messages_sent"), meant.at("messages_sent")) << layout << ", rank " << r;
      EXPECT_GT(done.at("bytes_sent").get<std::uint64_t>(), 0u);
    }
    EXPECT_EQ(report.at("hops"), planned.at(0).at("hops"));

    const JobResult gradients =
        run_job(local(ranks, Words{"bench", "--iterations", "2", "--direction", "backward"} + problem));
    ASSERT_EQ(gradients.exit_code, 0) << gradients.err;
    const Json backward = report_of(gradients);
    for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
      const Json &done = backward.at("per_rank").at(r), &meant = planned.at(1 + r).at("backward");
      for (const char* figure : {"bytes_sent", "messages_sent", "workspace_bytes"})
        EXPECT_EQ(done.at(figure), meant.at(figure)) << layout << ", rank " << r << ", " << figure;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlannedTraffic, ::testing::Values(2, 3, 5));

// Case A20: blocks of about 1000, 4000, 4096, 5000, 70000 and 1000000 bytes, around and beyond the size from
// which Open MPI's sends wait for their receive; once with that size where it is, once at 128 bytes. A ring
// that sent before it received would stand still here and be ended by its deadline.
void turn_ring_of_many_sizes(int ranks, const Environment& environment) {
  for (const int rows : {2, 8, 10, 137, 1953}) {  // a row of K and V is 2 * 64 * 4 bytes
    const JobResult job = run_job(
        local(ranks, words("bench --num-heads 2 --num-heads-kv 1 --head-dim 64 --mask causal --threads 1"
                           " --iterations 2 --deadline 10 --layout contiguous --check-rows 4 --seqlen " +
                           std::to_string(rows * ranks))),
        environment);
    EXPECT_EQ(job.exit_code, 0) << ranks << " ranks of " << rows << " rows: " << job.err;
  }
}

TEST(BlocksOfEverySize, TravelRoundRingsOf2To5) {
  for (const int ranks : {2, 5}) turn_ring_of_many_sizes(ranks, {});
}

TEST(BlocksOfEverySize, TravelWhenAlmostEverySendWaitsForItsReceive) {
  for (const int ranks : {3, 4}) {
    turn_ring_of_many_sizes(ranks, {{"OMPI_MCA_btl_vader_eager_limit", "128"}});
  }
}

}  // namespace
}  // namespace ringattn::test
