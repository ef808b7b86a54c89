// Rings of logical ranks on one device, as bench/gpu runs them on a GPU, on the harness.
#include "bench/gpu/rings.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/bench_gpu/harness_ranks.h"

namespace ringattn::acceptance {
namespace {

TEST(BenchGpuRings, EveryTinyRingPasses) {
  std::ostringstream text;
  Lines lines(text);
  check_rings(Extent::tiny, "auto", test::on_harness_ranks, lines);
  EXPECT_EQ(lines.failed(), 0) << text.str();
  EXPECT_EQ(lines.written(), static_cast<int>(ring_cases(Extent::tiny).size()));
}

TEST(BenchGpuRings, CasesHoldEveryLayoutAtEveryNumberOfRanks) {
  for (const Extent extent : {Extent::tiny, Extent::small, Extent::full}) {
    std::set<std::pair<int, LayoutKind>> seen;
    std::set<std::string> names;
    for (const RingCase& ring : ring_cases(extent)) {
      seen.insert({ring.ranks, ring.layout});
      EXPECT_TRUE(names.insert(ring.name()).second) << ring.name();
    }
    EXPECT_EQ(seen.size(), 3U * 3U);
  }
}

TEST(BenchGpuRings, AnErrorOfTheLibraryFailsTheCheck) {
  std::ostringstream text;
  Lines lines(text);
  const RingCase ring = ring_cases(Extent::tiny).front();
  const Inputs inputs = random_inputs(ring.whole, 1);
  check_ring(ring, inputs, truth_of(ring.whole, inputs), "sm_17", test::on_harness_ranks, lines);
  EXPECT_EQ(lines.failed(), 1);
  EXPECT_NE(text.str().find("sm_17"), std::string::npos) << text.str();
}

// The oracle's tiles are those of another mask than the ring's: what the ring answers must not pass.
TEST(BenchGpuRings, AWrongAnswerFailsTheCheck) {
  std::ostringstream text;
  Lines lines(text);
  for (RingCase ring : ring_cases(Extent::tiny)) {
    if (ring.ranks != 2) continue;
    ring.mask = Mask::window(ring.whole.q_rows, ring.whole.k_rows, {.left = 7, .right = 2});
    const Inputs inputs = random_inputs(ring.whole, 1);
    check_ring(ring, inputs, truth_of(ring.whole, inputs), "plain", test::on_harness_ranks, lines);
  }
  EXPECT_GT(lines.written(), 0);
  EXPECT_EQ(lines.failed(), lines.written()) << text.str();
  EXPECT_NE(text.str().find("dk is wrong"), std::string::npos) << text.str();
}

TEST(BenchGpuRings, TimesAreMeasuredForOneRankAndForFour) {
  std::ostringstream text;
  Lines lines(text);
  time_rings(Extent::tiny, test::on_harness_ranks, lines);
  EXPECT_EQ(lines.written(), 2) << text.str();
  EXPECT_EQ(lines.failed(), 0) << text.str();
  EXPECT_NE(text.str().find("\"backward ratio\": "), std::string::npos) << text.str();
  EXPECT_EQ(text.str().find("null"), std::string::npos) << text.str();
}

}  // namespace
}  // namespace ringattn::acceptance
