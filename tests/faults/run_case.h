// `ringattn run` on small files of a test's own, with an output file of an earlier run in place.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/faults/commands.h"
#include "tests/faults/report.h"
#include "tests/files/scratch.h"

namespace ringattn::test {

inline std::string f32_npy(const std::string& shape, std::size_t elements) {
  return npy(npy_dictionary("<f4", shape), std::string(elements * sizeof(float), '\0'));
}

// q [1, 31, 4, 8], k and v [1, 31, 2, 8]. 31 is prime: shards differ and with 5 ranks and zigzag are tiny.
class RunCase {
 public:
  static constexpr const char* kEarlier = "of an earlier run";

  RunCase() {
    q = scratch.file("q.npy", f32_npy("(1, 31, 4, 8)", 31 * 4 * 8));
    k = scratch.file("k.npy", f32_npy("(1, 31, 2, 8)", 31 * 2 * 8));
    v = scratch.file("v.npy", f32_npy("(1, 31, 2, 8)", 31 * 2 * 8));
    out = scratch.file("out.npy", kEarlier);
    inputs = scratch.names();
  }

  Words arguments() const {
    return Words{"run", "--q", q, "--k", k, "--v", v, "--out", out, "--deadline", "5", "--threads", "1"};
  }

  // Nothing has changed in the folder, and nothing was added: no partial output, no temporary file.
  void expect_untouched() const {
    EXPECT_EQ(contents(scratch.path("out.npy")), kEarlier);
    std::vector<std::string> before = inputs, after = scratch.names();
    std::ranges::sort(before);
    std::ranges::sort(after);
    EXPECT_EQ(after, before);
  }

  Scratch scratch;
  std::string q, k, v, out;
  std::vector<std::string> inputs;  // names in the folder before the job; for tests that add files to it
};

}  // namespace ringattn::test
