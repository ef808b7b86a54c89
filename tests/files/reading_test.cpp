#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "launch/files/npy_header.h"
#include "launch/files/tensor_file.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;
using test::npy;
using test::npy_dictionary;

template <class T>
std::vector<T> read(const TensorFile& file, const std::vector<Segment>& segments, std::size_t count) {
  std::vector<T> values(count);
  file.read(segments, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string refusal(const std::string& spec, std::optional<DType> dtype = std::nullopt) {
  return test::message_of<DataError>([&] { TensorFile::open(spec, dtype); });
}

// Bytes that this process has asked files for so far.
std::uint64_t bytes_read_so_far() {
  std::istringstream counters(test::contents("/proc/self/io"));
  std::string name;
  std::uint64_t value = 0;
  while (counters >> name >> value) {
    if (name == "rchar:") return value;
  }
  ADD_FAILURE() << "no rchar in /proc/self/io";
  return 0;
}

TEST(Reading, OnlyTheRowsOfTheShardReachTheCaller) {
  // Rows of other shards are NaN, so that one of them anywhere is seen.
  constexpr index_t kBatch = 2, kRows = 13, kRest = 3;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Segment> mine{{1, 2, 1}, {5, 3, 3}};
  std::vector<float> file_values, expected;
  for (index_t b = 0; b < kBatch; ++b) {
    for (index_t r = 0; r < kRows; ++r) {
      const bool held = r == 1 || r == 2 || r == 5 || r == 8 || r == 11;
      for (index_t e = 0; e < kRest; ++e) {
        const auto value = static_cast<float>(b * 100 + r * 3 + e);
        file_values.push_back(held ? value : nan);
        if (held) expected.push_back(value);
      }
    }
  }
  const test::Scratch scratch;
  const std::string path =
      scratch.file("q.npy", npy(npy_dictionary("<f4", "(2, 13, 3)"), test::raw(file_values)));
  EXPECT_EQ(read<float>(TensorFile::open(path, std::nullopt), mine, expected.size()), expected);
}

TEST(Reading, OnlyTheBytesOfTheRowsAreAskedFor) {
  // A sparse file of 12 GiB, so that offsets pass 2^32 too: reading the whole of it could not be missed.
  constexpr index_t kRows = index_t{1} << 20, kRowBytes = 3 * 1024 * 4;
  const test::Scratch scratch;
  const std::string header = format_npy_header(std::vector<index_t>{1, kRows, 3, 1024}, DType::f32);
  const std::string path = scratch.file("q.npy", header);
  std::filesystem::resize_file(path, header.size() + static_cast<std::uint64_t>(kRows * kRowBytes));
  const std::vector<Segment> rows{{kRows - 9, 3, 4}};
  {
    const int descriptor = ::open(path.c_str(), O_WRONLY);
    const float seven = 7;
    const off_t last = static_cast<off_t>(header.size()) + (kRows - 1) * kRowBytes;
    ASSERT_EQ(::pwrite(descriptor, &seven, 4, last), 4);
    ::close(descriptor);
  }
  const std::uint64_t idle = [] {
    const std::uint64_t before = bytes_read_so_far();
    return bytes_read_so_far() - before;  // what the counting itself costs
  }();
  const std::uint64_t before = bytes_read_so_far();
  const TensorFile file = TensorFile::open(path, std::nullopt);
  const auto values = read<float>(file, rows, 3 * 3 * 1024);
  const std::uint64_t asked = bytes_read_so_far() - before - idle;
  EXPECT_GE(asked, header.size() + 3 * kRowBytes);
  EXPECT_LE(asked,
            header.size() + 3 * kRowBytes + 64);  // the prefix is read twice, the counter's length varies
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[2 * 3 * 1024], 7);
}

TEST(Reading, EmptyShardsAndEmptyTensorsReadNothing) {
  const test::Scratch scratch;
  const std::string some = scratch.file("q.npy", npy(npy_dictionary("<f4", "(1, 2, 1)"), "12345678"));
  EXPECT_TRUE(read<float>(TensorFile::open(some, std::nullopt), {}, 0).empty());
  EXPECT_TRUE(read<float>(TensorFile::open(some, std::nullopt), {{2, 0, 1}}, 0).empty());
  const std::string none = scratch.file("n.npy", npy(npy_dictionary("<f4", "(1, 0, 5)"), ""));
  EXPECT_TRUE(read<float>(TensorFile::open(none, std::nullopt), {}, 0).empty());
}

TEST(Reading, DoublesAreRoundedOnlyOnRequest) {
  // 1 + 2^-24 lies between 1 and 1 + 2^-23 and ties to even; the next double above it does not.
  const double tie = 1 + std::ldexp(1.0, -24);
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> values{0.1, tie, std::nextafter(tie, 2.0), -0.0, inf, -inf, 1e-300, 3.4e38};
  const test::Scratch scratch;
  const std::string path = scratch.file("q.npy", npy(npy_dictionary("<f8", "(1, 8)"), test::raw(values)));
  EXPECT_TRUE(has(refusal(path), "holds f64, which is not computed in; pass --dtype f32"));
  EXPECT_TRUE(has(refusal(path, DType::bf16), "pass --dtype f32"));
  const TensorFile file = TensorFile::open(path, DType::f32);
  EXPECT_EQ(file.dtype(), DType::f32);
  EXPECT_EQ(read<float>(file, {{0, 8, 1}}, 8),
            (std::vector<float>{0.1f, 1.0f, 1.0f + 0x1p-23f, -0.0f, HUGE_VALF, -HUGE_VALF, 0.0f, 3.4e38f}));
  EXPECT_EQ(read<float>(file, {{0, 2, 7}}, 2), (std::vector<float>{0.1f, 3.4e38f}));
}

TEST(Reading, DoublesBeyondFloatAreRefusedAndNaNIsKept) {
  const test::Scratch scratch;
  const std::vector<double> values{std::numeric_limits<double>::quiet_NaN(), 1e39};
  const std::string path = scratch.file("q.npy", npy(npy_dictionary("<f8", "(1, 2)"), test::raw(values)));
  const TensorFile file = TensorFile::open(path, DType::f32);
  EXPECT_TRUE(std::isnan(read<float>(file, {{0, 1, 1}}, 1)[0]));
  EXPECT_TRUE(has(test::message_of<DataError>([&] { read<float>(file, {{1, 1, 1}}, 1); }), "beyond f32"));
}

TEST(Reading, LongRunsOfDoublesAreRoundedPieceByPiece) {
  constexpr std::size_t kCount = 200'003;  // a prime, several conversion buffers
  std::vector<double> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<double>(i) / 3;
  const test::Scratch scratch;
  const std::string path =
      scratch.file("q.npy", npy(npy_dictionary("<f8", "(1, 200003)"), test::raw(values)));
  const auto floats = read<float>(TensorFile::open(path, DType::f32), {{0, kCount, 1}}, kCount);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(floats[i], static_cast<float>(values[i])) << i;
}

TEST(Reading, SixteenBitsWithoutATypeNeedAnExplicitBfloat16) {
  // Case A27 test 3: 0x3FC0 is 1.5 as bfloat16 and 1.9375 as half.
  const test::Scratch scratch;
  for (const std::string descr : {"<V2", "|V2", "<u2"}) {
    const std::string path = scratch.file("q.npy", npy(npy_dictionary(descr, "(1, 1)"), "\xC0\x3F"));
    EXPECT_TRUE(has(refusal(path), "--dtype bf16")) << descr;
    EXPECT_TRUE(has(refusal(path, DType::f16), "--dtype bf16")) << descr;
    EXPECT_TRUE(has(refusal(path, DType::f32), "--dtype bf16")) << descr;
    const TensorFile file = TensorFile::open(path, DType::bf16);
    EXPECT_EQ(file.dtype(), DType::bf16);
    EXPECT_EQ(read<std::uint16_t>(file, {{0, 1, 1}}, 1)[0], 0x3FC0);
  }
}

TEST(Reading, AnotherTypeThanTheFilesIsRefusedNotConverted) {
  const test::Scratch scratch;
  const std::string f4 = scratch.file("f4.npy", npy(npy_dictionary("<f4", "(1, 1)"), "1234"));
  const std::string f2 = scratch.file("f2.npy", npy(npy_dictionary("<f2", "(1, 1)"), "12"));
  EXPECT_EQ(refusal(f4, DType::bf16), f4 + ": holds f32, and --dtype asks for bf16");
  EXPECT_EQ(refusal(f4, DType::f16), f4 + ": holds f32, and --dtype asks for f16");
  EXPECT_EQ(refusal(f2, DType::f32), f2 + ": holds f16, and --dtype asks for f32");
  EXPECT_EQ(TensorFile::open(f4, DType::f32).dtype(), DType::f32);
  EXPECT_EQ(TensorFile::open(f2, DType::f16).dtype(), DType::f16);
}

TEST(Reading, SpecsAreParsedStrictly) {
  const test::Scratch scratch;
  const std::string json = R"({"a:b.npy":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]}})";
  const std::string path = scratch.file("x:1.safetensors", test::safetensors(json, "1234"));
  EXPECT_EQ(TensorFile::open(path + ":a:b.npy", std::nullopt).shape(), (std::vector<index_t>{1, 1}));
  EXPECT_TRUE(has(refusal(path), "name a tensor, " + path + ":NAME; it holds 'a:b.npy'"));
  EXPECT_TRUE(has(refusal(path + ":"), "name a tensor"));
  EXPECT_TRUE(has(refusal(path + ":c"), "no tensor 'c'; it holds 'a:b.npy'"));
  EXPECT_TRUE(has(refusal("q.npy:q"), "takes no name"));
  EXPECT_TRUE(has(refusal("q.bin"), "unknown format"));
  EXPECT_TRUE(has(refusal(""), "unknown format"));
  const std::string colon = scratch.file("run:1.npy", npy(npy_dictionary("<f4", "(1, 1)"), "1234"));
  EXPECT_EQ(TensorFile::open(colon, std::nullopt).spec(), colon);
}

TEST(Reading, WhatIsNoRegularFileIsRefusedWithoutWaiting) {
  const test::Scratch scratch;
  EXPECT_TRUE(has(refusal(scratch.path("missing.npy")), "missing.npy: No such file"));
  std::filesystem::create_directory(scratch.path("folder.npy"));
  EXPECT_TRUE(has(refusal(scratch.path("folder.npy")), "is a folder"));
  // A pipe that nobody writes to: a plain open would wait for ever.
  ASSERT_EQ(::mkfifo(scratch.path("pipe.npy").c_str(), 0644), 0);
  EXPECT_TRUE(has(refusal(scratch.path("pipe.npy")), "not a regular file"));
  std::filesystem::create_symlink("/dev/zero", scratch.path("zero.npy"));
  EXPECT_TRUE(has(refusal(scratch.path("zero.npy")), "not a regular file"));
  std::filesystem::create_symlink("loop.npy", scratch.path("loop.npy"));
  EXPECT_TRUE(has(refusal(scratch.path("loop.npy")), "loop.npy: "));
  EXPECT_TRUE(has(refusal(scratch.file("f.npy", "") + "/q.npy"), "Not a directory"));
}

TEST(Reading, ASymbolicLinkToAFileIsTheFile) {
  const test::Scratch scratch;
  std::filesystem::create_symlink(scratch.file("q.npy", npy(npy_dictionary("<f4", "(1, 1)"), "1234")),
                                  scratch.path("l.npy"));
  EXPECT_EQ(TensorFile::open(scratch.path("l.npy"), std::nullopt).shape(), (std::vector<index_t>{1, 1}));
}

TEST(Reading, AFileThatShrinksAfterItWasOpenedIsAnError) {
  const test::Scratch scratch;
  const std::string path = scratch.file("q.npy", npy(npy_dictionary("<f4", "(1, 8)"), std::string(32, 'x')));
  const TensorFile file = TensorFile::open(path, std::nullopt);
  const std::uint64_t full = std::filesystem::file_size(path);
  std::filesystem::resize_file(path, full - 4);
  EXPECT_EQ(read<float>(file, {{0, 7, 1}}, 7).size(), 7u);  // the rows that are still there
  EXPECT_TRUE(has(test::message_of<DataError>([&] { read<float>(file, {{0, 8, 1}}, 8); }), "became shorter"));
}

TEST(Reading, WrongRoomAndRowsOutsideAreUsageErrors) {
  const test::Scratch scratch;
  const std::string path = scratch.file("q.npy", npy(npy_dictionary("<f4", "(1, 8)"), std::string(32, 'x')));
  const TensorFile file = TensorFile::open(path, std::nullopt);
  EXPECT_EQ(test::message_of<UsageError>([&] {
              read<float>(file, {{0, 3, 1}}, 4);
            }),
            path + ": room for 16 bytes, the segments hold 12");
  EXPECT_TRUE(has(test::message_of<UsageError>([&] {
                    read<float>(file, {{7, 2, 1}}, 2);
                  }),
                  "leaves the 8 rows"));
}

TEST(Reading, AMovedFileReadsOn) {
  const test::Scratch scratch;
  const std::string one =
      scratch.file("1.npy", npy(npy_dictionary("<f4", "(1, 1)"), test::raw(std::vector<float>{1})));
  const std::string two =
      scratch.file("2.npy", npy(npy_dictionary("<f4", "(1, 1)"), test::raw(std::vector<float>{2})));
  TensorFile file = TensorFile::open(one, std::nullopt);
  file = TensorFile::open(two, std::nullopt);
  const TensorFile last = std::move(file);
  EXPECT_EQ(read<float>(last, {{0, 1, 1}}, 1)[0], 2);
}

}  // namespace
}  // namespace ringattn
