// What naive attention in a type of its own misses the expected result of the real input by: the yardstick
// for the program, which may be twice as far from float64 (faults.md section 1, "accuracy").
#pragma once
#include "tests/files/real_input.h"

namespace ringattn::test {

struct NaiveError {
  double out = 0;  // largest absolute error over RealInput::kExpectedRows of all heads
  double lse = 0;  // over all rows of all heads in f32, over the same ones in f16
};

// launch/naive_row.h on the fixture's f16 numbers, turned by RoPE in float64, with every step rounded to
// `dtype` (f16 or f32).
NaiveError naive_error(const RealInput& real, DType dtype);

}  // namespace ringattn::test
