// 20,000 damaged headers of each kind, the same ones every time: refused, or right.
#include <gtest/gtest.h>

#include <random>

#include "tests/files/header_invariants.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::Verdict;

// One to four changes of the kinds that parsers fall over: bits, digits, brackets, lost and doubled pieces.
std::string mutated(std::string file, std::mt19937& random) {
  const std::string tokens[] = {"0",
                                "-1",
                                "9223372036854775807",
                                "9223372036854775808",
                                "4611686018427387904",
                                "{",
                                "}",
                                "[",
                                "]",
                                "(",
                                ")",
                                ",",
                                ":",
                                "'",
                                "\"",
                                "\\",
                                "\n",
                                " ",
                                "True",
                                "null",
                                "1e9",
                                ">f4",
                                "F64",
                                "shape",
                                "q",
                                std::string(1, '\0'),
                                "\xff"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::size_t changes = 1 + below(4); changes > 0 && !file.empty(); --changes) {
    const std::size_t at = below(file.size());
    const std::size_t length = std::min(file.size() - at, 1 + below(12));
    switch (below(5)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ 1 << below(8));
        break;
      case 1:
        file.replace(at, below(2), tokens[below(std::size(tokens))]);
        break;
      case 2:
        file.erase(at, length);
        break;
      case 3:
        file.insert(at, file.substr(at, length));
        break;
      default:
        file.resize(at);
    }
  }
  return file;
}

template <class Judge>
void expect_refused_or_right(const std::string& file, std::uint32_t seed, Judge&& judge) {
  std::mt19937 random(seed);
  ASSERT_EQ(judge(file), Verdict::accepted);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string damaged = mutated(file, random);
    const Verdict verdict = judge(damaged);
    ASSERT_NE(verdict, Verdict::broken) << i << ": " << ::testing::PrintToString(damaged);
    ++(verdict == Verdict::accepted ? accepted : refused);
  }
  // Some damage is harmless (a blank, the data, another name); most is not. A run without both tests nothing.
  EXPECT_GT(accepted, 200);
  EXPECT_GT(refused, 10'000);
}

TEST(Mutation, NpyHeadersAreRefusedOrRight) {
  const std::string data = test::raw(std::vector<float>{1, 2, 3, 4, 5, 6});
  for (int version = 1; version <= 3; ++version) {
    expect_refused_or_right(
        test::npy(test::npy_dictionary("<f4", "(1, 2, 3)"), data, version), 1,
        [](const std::string& f) { return test::judge_npy(std::as_bytes(std::span(f))); });
  }
}

TEST(Mutation, SafetensorsHeadersAreRefusedOrRight) {
  const std::string json =
      R"({"__metadata__":{"a":"b"},"q":{"dtype":"F32","shape":[1,2,3],"data_offsets":[2,26]},)"
      R"("k":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}  )";
  expect_refused_or_right(test::safetensors(json, std::string(26, 'x')), 2, [](const std::string& f) {
    return test::judge_safetensors(std::as_bytes(std::span(f)));
  });
}

}  // namespace
}  // namespace ringattn
