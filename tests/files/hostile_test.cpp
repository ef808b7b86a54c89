// Files that lie, and files that end early: always a DataError that names the file, and never an allocation
// beyond the size of the file. The cases are the table of published readers' faults (cnpy, libnpy, xtensor,
// safetensors-cpp) and A27.
#include <gtest/gtest.h>

#include "launch/files/tensor_file.h"
#include "tests/files/largest_allocation.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;
using test::npy;
using test::npy_dictionary;

// Opening the file must fail with a text that has `part`.
void expect_refused(const std::string& spec, const std::string& part,
                    std::optional<DType> dtype = std::nullopt) {
  const std::string path = spec.substr(
      0, spec.find(".safetensors:") == std::string::npos ? spec.size() : spec.find(".safetensors:") + 12);
  const std::size_t size = std::filesystem::file_size(path);
  test::forget_allocations();
  std::string message;
  try {
    TensorFile::open(spec, dtype);
  } catch (const DataError& error) {
    message = error.what();
  }
  EXPECT_LE(test::largest_allocation(), size + (1 << 20)) << spec;
  EXPECT_TRUE(message.starts_with(path)) << spec << ": " << message;
  EXPECT_TRUE(has(message, part)) << spec;
}

const std::string kTwelveBytes = test::raw(std::vector<float>{1, 2, 3});

struct Hostile {
  std::string what, bytes, part;
};

TEST(HostileNpy, EveryRowOfTheTableIsRefused) {
  const std::string good = npy(npy_dictionary("<f4", "(1, 3)"), kTwelveBytes);
  std::string wrong_magic = good;
  wrong_magic[0] = 'X';
  std::string lying_length = good;
  lying_length[8] = static_cast<char>(lying_length[8] + 1);
  std::string short_length = good;
  short_length[8] = static_cast<char>(short_length[8] - 1);
  std::string huge_length = npy(npy_dictionary("<f4", "(1, 3)"), kTwelveBytes, 2);
  huge_length.replace(8, 4, "\xff\xff\xff\xff");
  const std::vector<Hostile> files = {
      {"truncated data", good.substr(0, good.size() - 1), "header promises 12 bytes of data, file has 11"},
      {"data too long", good + "x", "header promises 12 bytes of data, file has 13"},
      {"wrong magic", wrong_magic, "magic"},
      {"big-endian", npy(npy_dictionary(">f4", "(1, 3)"), kTwelveBytes), "descr '>f4' is big-endian"},
      {"object", npy(npy_dictionary("|O", "(1, 3)"), kTwelveBytes), "descr '|O'"},
      {"no word size", npy(npy_dictionary("<f", "(1, 3)"), kTwelveBytes), "descr '<f'"},
      {"negative dimension", npy(npy_dictionary("<f4", "(1, -3)"), kTwelveBytes), "negative dimension -3"},
      {"product overflows", npy(npy_dictionary("<f4", "(4611686018427387904, 4)"), ""), "overflows"},
      {"sum of dimensions overflows to the size",
       npy(npy_dictionary("<f4", "(4611686018427387907, 4)"),
           kTwelveBytes + kTwelveBytes + kTwelveBytes + kTwelveBytes),
       "overflows"},
      {"16 TiB promised", npy(npy_dictionary("<f4", "(2, 2199023255552)"), std::string(64, 'x')),
       "header promises 17592186044416 bytes of data, file has 64"},
      {"length one too long", lying_length, "one newline"},
      {"length one too short", short_length, "one newline"},
      {"length past the end", huge_length, "over the limit"},
      {"length to the end of a long file",
       std::string("\x93NUMPY\x02\x00", 8) + test::little_endian(20'000, 4) + std::string(20'000, ' '),
       "over the limit of 10000"},
      {"word size 999999999", npy(npy_dictionary("<f999999999", "(1, 3)"), kTwelveBytes),
       "descr '<f999999999'"},
      {"fortran_order", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3), }\n", kTwelveBytes),
       "fortran_order is True"},
      {"deep nesting", npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(9000, '('), ""),
       "shape has something else"},
      {"long dimension", npy(npy_dictionary("<f4", "(1" + std::string(9000, '0') + ", 3)"), kTwelveBytes),
       "over 2^63 - 1"},
      {"9,000 commas", npy(npy_dictionary("<f4", "(1" + std::string(9000, ',') + ")"), kTwelveBytes),
       "else than integers"},
      {"4,000 dimensions",
       npy(npy_dictionary("<f4",
                          [] {
                            std::string s = "(";
                            for (int i = 0; i < 4000; ++i) s += "1,";
                            return s + ")";
                          }()),
           kTwelveBytes),
       "4000 dimensions"},
      {"empty file", "", "magic"},
      {"no rows", npy(npy_dictionary("<f4", "(3,)"), kTwelveBytes), "no axis of rows"},
      {"scalar", npy(npy_dictionary("<f4", "()"), "1234"), "no axis of rows"},
  };
  const test::Scratch scratch;
  for (const Hostile& file : files) {
    SCOPED_TRACE(file.what);
    expect_refused(scratch.file("q.npy", file.bytes), file.part);
  }
}

TEST(HostileNpy, HeadersOver256BytesAreReadRight) {
  // cnpy reads the first 256 bytes of the header only and then takes header for data.
  const test::Scratch scratch;
  const std::string dictionary =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }" + std::string(600, ' ') + "\n";
  const TensorFile file =
      TensorFile::open(scratch.file("q.npy", npy(dictionary, kTwelveBytes)), std::nullopt);
  std::vector<float> values(3);
  const Segment all{0, 3, 1};
  file.read(std::span(&all, 1), std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3}));
}

TEST(HostileSafetensors, EveryRowOfTheTableIsRefused) {
  const std::string q = R"("q":{"dtype":"F32","shape":[1,3],"data_offsets":[0,12]})";
  const std::string good = "{" + q + "}";
  std::string lying_length = test::safetensors(good, kTwelveBytes);
  lying_length[0] = static_cast<char>(lying_length[0] + 1);
  std::string bomb = R"({"q":)";
  bomb += std::string(1'000'000, '[');
  const std::vector<Hostile> files = {
      {"truncated data", test::safetensors(good, "12345678901"),
       "header promises 12 bytes of data, file has 11"},
      {"data too long", test::safetensors(good, "1234567890123"),
       "header promises 12 bytes of data, file has 13"},
      {"length lies by one", lying_length, "zero byte"},
      {"length past the end", test::little_endian(1000, 8) + good, "reaches past the end"},
      {"length 2^62", test::little_endian(std::uint64_t{1} << 62, 8) + good, "over the limit"},
      {"negative dimension",
       test::safetensors(R"({"q":{"dtype":"F32","shape":[1,-3],"data_offsets":[0,12]}})", kTwelveBytes),
       "negative number -3"},
      {"product overflows",
       test::safetensors(R"({"q":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
       "overflows"},
      {"16 TiB promised",
       test::safetensors(
           R"({"q":{"dtype":"F32","shape":[2,2199023255552],"data_offsets":[0,17592186044416]}})", "x"),
       "file has 1"},
      {"shape larger than the range",
       test::safetensors(R"({"q":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", "1234"),
       "tensor 'q'"},
      {"range past the end",
       test::safetensors(R"({"q":{"dtype":"F32","shape":[1,3],"data_offsets":[12,24]}})", kTwelveBytes),
       "hole"},
      {"overlap",
       test::safetensors("{" + q + R"(,"k":{"dtype":"F32","shape":[1,2],"data_offsets":[8,16]}})",
                         kTwelveBytes + "1234"),
       "tensor 'k'"},
      {"hole",
       test::safetensors("{" + q + R"(,"k":{"dtype":"F32","shape":[1,2],"data_offsets":[16,24]}})",
                         kTwelveBytes + kTwelveBytes),
       "tensor 'k'"},
      {"unknown dtype",
       test::safetensors(R"({"q":{"dtype":"Q7","shape":[1,3],"data_offsets":[0,12]}})", kTwelveBytes),
       "tensor 'q': unknown dtype 'Q7'"},
      {"deep nesting", test::safetensors(bomb, ""), "but an array"},
      {"no rows",
       test::safetensors(R"({"q":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", kTwelveBytes),
       "no axis of rows"},
      {"empty file", "", "has 0 bytes"},
  };
  const test::Scratch scratch;
  for (const Hostile& file : files) {
    SCOPED_TRACE(file.what);
    expect_refused(scratch.file("x.safetensors", file.bytes) + ":q", file.part);
  }
}

TEST(HostileSafetensors, ManyTinyTensorsCostMemoryInProportion) {
  // 100,000 empty tensors, then one that lies: all are kept until the last is read.
  std::string json = "{";
  for (int i = 0; i < 100'000; ++i)
    json += '"' + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)";
  json += R"("q":{"dtype":"F32","shape":[1,3],"data_offsets":[0,11]}})";
  const test::Scratch scratch;
  const std::string path = scratch.file("x.safetensors", test::safetensors(json, kTwelveBytes));
  EXPECT_TRUE(
      has(test::message_of<DataError>([&] { TensorFile::open(path + ":q", std::nullopt); }), "tensor 'q'"));
}

TEST(Truncation, AtEveryByteOfEveryKindOfFile) {
  const test::Scratch scratch;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"v1.npy", npy(npy_dictionary("<f4", "(1, 3)"), kTwelveBytes, 1)},
      {"v2.npy", npy(npy_dictionary("<f2", "(1, 2, 3)"), kTwelveBytes, 2)},
      {"v3.npy", npy(npy_dictionary("<f4", "(3, 1)"), kTwelveBytes, 3)},
      {"x.safetensors:q",
       test::safetensors(
           R"({"k":{"dtype":"I8","shape":[5],"data_offsets":[12,17]},"q":{"dtype":"F32","shape":[1,3],"data_offsets":[0,12]}} )",
           kTwelveBytes + "12345")},
  };
  for (const auto& [spec, bytes] : files) {
    const std::string name = spec.substr(0, spec.find(':'));
    scratch.file(name, bytes);
    EXPECT_NO_THROW(TensorFile::open(scratch.path(spec), std::nullopt)) << spec;
    for (std::size_t kept = 0; kept < bytes.size(); ++kept) {
      SCOPED_TRACE(std::to_string(kept) + " of " + std::to_string(bytes.size()) + " bytes");
      scratch.file(name, bytes.substr(0, kept));
      expect_refused(scratch.path(spec), name);
    }
  }
}

}  // namespace
}  // namespace ringattn
