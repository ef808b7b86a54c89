// The committed real input, tests/data/smollm2_layer10 (see tests/data/README.md): Q, K and V of layer 10 of
// SmolLM2-135M on 1,021 tokens of text, and the causal attention that NumPy computed from them in float64.
#pragma once
#include <filesystem>
#include <string>

#include "src/layout.h"
#include "src/types.h"

namespace ringattn::test {

struct RealInput {
  static constexpr index_t kTokens = 1021, kHeads = 9, kHeadsKv = 3, kHeadDim = 64;
  static constexpr double kRopeBase = 100'000;  // pairs interleaved; the files are from before RoPE
  // expected_out holds rows 0, 7, 14, ... 1015 of the output. 7 has no factor in common with 2, 3 and 5
  // ranks, so every rank's rows are among them in every layout.
  static constexpr Segment kExpectedRows{0, 146, 7};

  std::filesystem::path folder;

  // The spec of "q", "k", "v" (f16), "expected_out" or "expected_lse" (both f64).
  std::string spec(const std::string& name) const { return (folder / (name + ".npy")).string(); }

  // q.npy, k.npy and v.npy as f32 in another folder. The same numbers: the expected output is that of these
  // too.
  void widen_to(const std::filesystem::path& other) const;

  // Largest absolute difference of a result from the expected one, over kExpectedRows of an output [1, 1021,
  // 9, 64] of that type and over all of an lse [1, 9, 1021] of f32. A NaN in the result, or an infinity, is
  // an infinite difference. Throws DataError if a file cannot be read and UsageError if its shape is another.
  double out_difference(const std::string& out_spec, DType dtype) const;
  double lse_difference(const std::string& lse_spec) const;
};

}  // namespace ringattn::test
