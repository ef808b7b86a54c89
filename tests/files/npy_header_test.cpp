#include "launch/files/npy_header.h"

#include <gtest/gtest.h>

#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;
using test::npy;

// Parses a header that promises no data unless `bytes` says otherwise.
StoredTensor parse(const std::string& file, std::uint64_t data_bytes = 0) {
  return parse_npy_header("q.npy", std::as_bytes(std::span(file)), file.size() + data_bytes);
}
StoredTensor parse_dictionary(const std::string& dictionary, std::uint64_t data_bytes = 0) {
  return parse(npy(dictionary, ""), data_bytes);
}
std::string refusal(const std::string& dictionary, std::uint64_t data_bytes = 0) {
  return test::message_of<DataError>([&] { parse_dictionary(dictionary, data_bytes); });
}

TEST(NpyHeader, AcceptsEveryWayPythonWritesTheDictionary) {
  for (const std::string dictionary : {
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
           "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n",
           "{'shape':(2,3,),'fortran_order':False,'descr':'<f4'}     \n",
           "{\"fortran_order\": False, \"shape\": (2, 3), \"descr\": \"<f4\"}\n",
           "  {  'descr'  :  '<f4'  ,  'fortran_order'  :  False  ,  'shape'  :  (  2  ,  3  )  }  \n",
       }) {
    const StoredTensor t = parse_dictionary(dictionary, 24);
    EXPECT_EQ(t.type, FileType::f32) << dictionary;
    EXPECT_EQ(t.shape, (std::vector<index_t>{2, 3})) << dictionary;
    EXPECT_EQ(t.bytes, 24u);
    EXPECT_EQ(t.offset, 10 + dictionary.size());
  }
}

TEST(NpyHeader, ReadsAllThreeVersionsAndEveryType) {
  const std::pair<std::string, FileType> types[] = {{"<f2", FileType::f16}, {"<f4", FileType::f32},
                                                    {"<f8", FileType::f64}, {"<u2", FileType::u2},
                                                    {"<V2", FileType::v2},  {"|V2", FileType::v2}};
  for (int version = 1; version <= 3; ++version) {
    for (const auto& [descr, type] : types) {
      const StoredTensor t =
          parse(npy(test::npy_dictionary(descr, "(5, 1)"), "", version), 5 * size_of(type));
      EXPECT_EQ(t.type, type) << descr;
      EXPECT_EQ(t.shape, (std::vector<index_t>{5, 1}));
    }
  }
}

TEST(NpyHeader, ScalarOneTupleAndZeroSizesAreShapes) {
  EXPECT_EQ(parse_dictionary(test::npy_dictionary("<f4", "()"), 4).shape, std::vector<index_t>{});
  EXPECT_EQ(parse_dictionary(test::npy_dictionary("<f4", "(7,)"), 28).shape, std::vector<index_t>{7});
  EXPECT_EQ(parse_dictionary(test::npy_dictionary("<f4", "(1, 0, 9)"), 0).bytes, 0u);
}

TEST(NpyHeader, RefusesWhatPythonWouldNotRead) {
  // Each with the part of the message that names the trouble.
  const std::pair<std::string, std::string> cases[] = {
      {"", "expected '{'"},
      {"\n", "expected '{'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), ", "key is not a string"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", "one newline"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n\n", "one newline"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } x\n", "one newline"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),, }\n", "key is not a string"},
      {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3), }\n", "expected '}'"},
      {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", "expected ':'"},
      {"{'descr': '<f4, 'fortran_order': False, 'shape': (2, 3), }\n", "expected '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x", "without an end"},
      {"{descr: '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", "key is not a string"},
      {"{'descr': '<f4', 'fortran_order': false, 'shape': (2, 3), }\n", "fortran_order is neither"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }\n", "fortran_order is neither"},
      {"{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (2, 3), }\n", "expected '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3], }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2), }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': 2, }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }\n", "else than integers"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, , 3), }\n", "else than integers"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 3), }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3 4), }\n", "expected ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2.0, 3), }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3L), }\n", "expected ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (0x2, 3), }\n", "not a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (+2, 3), }\n", "else than integers"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (02, 3), }\n", "malformed integer"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)", "expected '}'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3", "expected ')'"},
      {"{'descr': u'<f4', 'fortran_order': False, 'shape': (2, 3), }\n", "descr is not a string"},
      {"{'descr': '<\\x66' '4', 'fortran_order': False, 'shape': (2, 3), }\n", "not read"},
      {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n", "descr is not a string"},
  };
  for (const auto& [dictionary, part] : cases) {
    const std::string message = refusal(dictionary, 24);
    EXPECT_TRUE(has(message, part)) << dictionary;
    EXPECT_TRUE(message.starts_with("q.npy: ")) << message;
  }
}

TEST(NpyHeader, NeedsExactlyTheThreeKeys) {
  EXPECT_TRUE(has(refusal("{'fortran_order': False, 'shape': (2, 3), }\n"), "'descr' is missing"));
  EXPECT_TRUE(has(refusal("{'descr': '<f4', 'shape': (2, 3), }\n"), "'fortran_order' is missing"));
  EXPECT_TRUE(has(refusal("{'descr': '<f4', 'fortran_order': False}\n"), "'shape' is missing"));
  EXPECT_TRUE(has(refusal("{}\n"), "is missing"));
  EXPECT_TRUE(
      has(refusal("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}\n"), "twice"));
  EXPECT_TRUE(has(refusal("{'shape': (), 'shape': ()}\n"), "'shape' comes twice"));
  EXPECT_TRUE(has(refusal("{'fortran_order': False, 'fortran_order': False}\n"), "twice"));
  EXPECT_TRUE(has(refusal("{'order': 'C'}\n"), "unknown key 'order'"));
}

TEST(NpyHeader, NamesTheTypeItDoesNotRead) {
  for (const std::string descr : {">f4", ">f8", ">u2", "=f4", "|O", "<c8", "<i4", "<f16", "|f4", "<f", "f4",
                                  "", "<f999999999", "<V4", ">V2", "|b1"}) {
    EXPECT_TRUE(has(refusal(test::npy_dictionary(descr, "(2, 3)"), 24), "descr '" + descr + "'"));
  }
  EXPECT_TRUE(has(refusal(test::npy_dictionary(">f4", "(2, 3)"), 24), "big-endian"));
}

TEST(NpyHeader, ShapesThatDoNotFit64BitsAreRefusedBeforeAnythingIsAllocated) {
  // 2^62 x 4 x 4 bytes wraps to 0 in 64 bits, so a file without data would pass.
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(4611686018427387904, 4)")), "overflows"));
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(0, 4611686018427387904, 4)")), "overflows"));
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(9223372036854775807,)")), "overflows"));
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(9223372036854775808,)")), "over 2^63 - 1"));
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(99999999999999999999999999,)")), "over 2^63 - 1"));
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", "(2, -3)")), "negative dimension -3"));
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1, ";
  EXPECT_TRUE(has(refusal(test::npy_dictionary("<f4", many + ")"), 4), "65 dimensions"));
}

TEST(NpyHeader, DataMustBeExactlyWhatTheHeaderPromises) {
  const std::string dictionary = test::npy_dictionary("<f4", "(32, 32)");
  EXPECT_EQ(parse_dictionary(dictionary, 4096).bytes, 4096u);
  EXPECT_EQ(refusal(dictionary, 1210), "q.npy: header promises 4096 bytes of data, file has 1210");
  EXPECT_EQ(refusal(dictionary, 4097), "q.npy: header promises 4096 bytes of data, file has 4097");
}

TEST(NpyHeader, LengthIsCheckedBeforeItIsBelieved) {
  const auto offset = [](const std::string& file, std::uint64_t size) {
    return npy_data_offset("q.npy", std::as_bytes(std::span(file)), size);
  };
  const std::string v1("\x93NUMPY\x01\x00\x76\x00", 10);
  EXPECT_EQ(offset(v1, 128), 128u);
  EXPECT_TRUE(has(test::message_of<DataError>([&] { offset(v1, 127); }), "reaches past the end of the file"));
  // The limit is NumPy's own, 10,000.
  const std::string at_limit = std::string("\x93NUMPY\x02\x00", 8) + test::little_endian(10'000, 4);
  EXPECT_EQ(offset(at_limit, 1 << 20), 10'012u);
  for (const std::uint64_t length : {10'001ull, 0x7fffffffull, 0xffffffffull}) {
    const std::string over = std::string("\x93NUMPY\x02\x00", 8) + test::little_endian(length, 4);
    EXPECT_TRUE(has(test::message_of<DataError>([&] { offset(over, std::uint64_t{1} << 40); }),
                    "over the limit of 10000"));
  }
}

TEST(NpyHeader, MagicAndVersionAreNamed) {
  const auto message = [](std::string file) { return test::message_of<DataError>([&] { parse(file); }); };
  std::string file = npy(test::npy_dictionary("<f4", "()"), "");
  std::string wrong = file;
  wrong[1] = 'n';
  EXPECT_TRUE(has(message(wrong), "magic"));
  for (const char major : {'\0', '\4', '\xff'}) {
    wrong = file;
    wrong[6] = major;
    EXPECT_TRUE(has(message(wrong), "version"));
  }
  wrong = file;
  wrong[7] = '\1';
  EXPECT_TRUE(has(message(wrong), "version 1.1"));
}

TEST(NpyHeader, WrittenHeadersAreAlignedAndReadBack) {
  for (const std::vector<index_t>& shape :
       {std::vector<index_t>{}, {1021}, {1, 0, 9, 64}, {1, 1021, 9, 64}, {1, 1, 1, index_t{1} << 50}}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const std::string header = format_npy_header(shape, dtype);
      EXPECT_EQ(header.size() % 64, 0u);
      const StoredTensor t =
          parse(header, checked_bytes("", shape, static_cast<unsigned>(8 * size_of(dtype))));
      EXPECT_EQ(t.shape, shape);
      EXPECT_EQ(t.type, dtype == DType::bf16 ? FileType::v2 : stored_as(dtype));
      EXPECT_EQ(t.offset, header.size());
    }
  }
}

}  // namespace
}  // namespace ringattn
