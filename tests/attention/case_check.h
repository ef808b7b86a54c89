// Runs one of the fault cases on every number of ranks and layout, and compares with the values that it
// states.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/ring_case.h"

namespace ringattn::test {

inline constexpr LayoutKind kLayouts[] = {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped};

struct Expected {
  std::vector<double> out{};  // element 0 of each row of head 0; empty = not stated
  std::vector<double> lse{};  // of each row of head 0; empty = not stated
  double tolerance = 2e-5;    // cases.md section 0: fp32 out and lse
};

inline void expect_rows(const Answer& got, const Expected& expected, const std::string& where) {
  for (std::size_t i = 0; i < expected.out.size(); ++i)
    EXPECT_NEAR(got.out.at(0, static_cast<index_t>(i), 0, 0), expected.out[i], expected.tolerance)
        << "row " << i << ", " << where;
  for (std::size_t i = 0; i < expected.lse.size(); ++i) {
    if (std::isinf(expected.lse[i])) {
      EXPECT_EQ(got.lse[i], expected.lse[i]) << "lse of row " << i << ", " << where;
    } else {
      EXPECT_NEAR(got.lse[i], expected.lse[i], expected.tolerance) << "lse of row " << i << ", " << where;
    }
  }
}

template <class Check>
void on_every_ring(const Problem& problem, const Inputs& in, const Check& check) {
  for (const RingShape& shape : ring_shapes(problem))
    check(run_threads(problem, shape.layout, shape.ranks, in), text(shape));
}

inline void expect_case(const Problem& problem, const Inputs& in, const Expected& expected) {
  on_every_ring(problem, in,
                [&](const Answer& got, const std::string& where) { expect_rows(got, expected, where); });
}

// "digest" of cases.md: sum and sum of absolute values; may differ by the tolerance times sqrt(elements).
inline void expect_digest(const std::vector<double>& x, double sum, double sum_abs,
                          const std::string& where) {
  double s = 0, a = 0;
  for (const double e : x) s += e, a += std::fabs(e);
  const double tolerance = 2e-5 * std::sqrt(static_cast<double>(x.size()));
  EXPECT_NEAR(s, sum, tolerance) << where;
  if (sum_abs >= 0) {
    EXPECT_NEAR(a, sum_abs, tolerance) << where;
  }
}

}  // namespace ringattn::test
