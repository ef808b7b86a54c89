// The unit cases that bench/gpu asks of the hardware, asked of the harness.
#include "bench/gpu/units.h"

#include <gtest/gtest.h>

#include <sstream>

#include "bench/gpu/unit_run.h"

namespace ringattn::acceptance {
namespace {

TEST(BenchGpuUnits, AllPassOnTheHarness) {
  std::ostringstream text;
  Lines lines(text);
  check_units(90, lines);
  EXPECT_EQ(lines.failed(), 0) << text.str();
  EXPECT_EQ(lines.written(), 10 + 8 + 10 * 6);  // wgmma: ten shapes and types, six arrangements
}

TEST(BenchGpuUnits, ADeviceIsAskedOnlyForWhatItHas) {
  std::ostringstream text;
  Lines lines(text);
  check_units(75, lines);
  EXPECT_EQ(lines.written(), 0);
  check_units(80, lines);
  EXPECT_EQ(lines.written(), 10) << text.str();
  EXPECT_EQ(text.str().find("wgmma"), std::string::npos);
}

TEST(BenchGpuUnits, ADifferenceIsNamedByItsPlace) {
  EXPECT_EQ(differing("x", std::vector<int>{1, 2}, {1, 2}), "");
  EXPECT_EQ(differing("x", std::vector<int>{1, 3}, {1, 2}), "x[1] is 3, expected 2");
  EXPECT_EQ(differing("x", std::vector<int>{1}, {1, 2}), "x has 1 elements, expected 2");
  EXPECT_NE(differing("x", std::vector<float>{NAN}, {NAN}), "");
}

}  // namespace
}  // namespace ringattn::acceptance
