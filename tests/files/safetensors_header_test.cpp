#include "launch/files/safetensors_header.h"

#include <gtest/gtest.h>

#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;

StoredTensor parse(const std::string& json, const std::string& tensor, std::uint64_t data_bytes) {
  return parse_safetensors_header("x.safetensors", tensor, json, 8 + json.size() + data_bytes);
}
std::string refusal(const std::string& json, std::uint64_t data_bytes = 24, const std::string& tensor = "q") {
  const std::string message = test::message_of<DataError>([&] { parse(json, tensor, data_bytes); });
  EXPECT_TRUE(message.starts_with("x.safetensors: ")) << message;
  return message;
}

const std::string kQ = R"("q":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";

TEST(SafetensorsHeader, FindsATensorAmongOthersInAnyOrder) {
  const std::string json =
      R"({"__metadata__":{"format":"pt"},"z":{"data_offsets":[30,86],"shape":[7],"dtype":"I64"},)" + kQ +
      R"(,"k":{"dtype":"BF16","shape":[1,3],"data_offsets":[24,30]}}    )";
  const StoredTensor k = parse(json, "k", 86);
  EXPECT_EQ(k.type, FileType::bf16);
  EXPECT_EQ(k.shape, (std::vector<index_t>{1, 3}));
  EXPECT_EQ(k.offset, 8 + json.size() + 24);
  EXPECT_EQ(k.bytes, 6u);
  EXPECT_EQ(parse(json, "q", 86).offset, 8 + json.size());
}

TEST(SafetensorsHeader, SizesOfEveryTypeOfTheFormatAreKnown) {
  const std::pair<std::string, int> types[] = {
      {"BOOL", 8},        {"U8", 8},          {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},
      {"I32", 32},        {"U64", 64},        {"I64", 64},    {"F16", 16},    {"BF16", 16},   {"F32", 32},
      {"F64", 64},        {"C64", 64},        {"F4", 4},      {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
      {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [type, bits] : types) {
    // 4 elements, so that 4 and 6 bits fill whole bytes.
    const std::string end = std::to_string(24 + bits / 2);
    const std::string json =
        "{" + kQ + R"(,"o":{"dtype":")" + type + R"(","shape":[4],"data_offsets":[24,)" + end + "]}}";
    EXPECT_EQ(parse(json, "q", 24 + static_cast<std::uint64_t>(bits) / 2).bytes, 24u) << type;
  }
  EXPECT_TRUE(has(refusal(R"({"o":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), "whole bytes"));
}

TEST(SafetensorsHeader, NamesTheTensorOfAnUnknownOrUnreadableType) {
  // Case A27 test 4: dtype "Q7", on the tensor asked for and on another.
  EXPECT_TRUE(has(refusal(R"({"q":{"dtype":"Q7","shape":[24],"data_offsets":[0,24]}})"),
                  "tensor 'q': unknown dtype 'Q7'"));
  EXPECT_TRUE(has(refusal("{" + kQ + R"(,"w":{"dtype":"Q7","shape":[1],"data_offsets":[24,25]}})", 25),
                  "tensor 'w': unknown dtype 'Q7'"));
  EXPECT_TRUE(has(refusal(R"({"q":{"dtype":"I32","shape":[2,3],"data_offsets":[0,24]}})"),
                  "tensor 'q': dtype I32 is not read"));
}

TEST(SafetensorsHeader, RangesHaveTheSizeOfTheirShape) {
  // Case A27 test 4: F32 [1000, 1000] with four bytes.
  const std::string message = refusal(R"({"q":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4);
  EXPECT_TRUE(has(message, "tensor 'q'"));
  EXPECT_TRUE(has(message, "[0, 4]"));
  EXPECT_TRUE(has(message, "4000000 bytes"));
  EXPECT_TRUE(
      has(refusal(R"({"q":{"dtype":"F32","shape":[2,3],"data_offsets":[24,0]}})"), "data_offsets [24, 0]"));
  // 2^62 x 4 elements of 4 bytes wrap to 0.
  EXPECT_TRUE(has(refusal(R"({"q":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0),
                  "tensor 'q': shape [4611686018427387904, 4] overflows"));
  EXPECT_TRUE(has(refusal(R"({"q":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,0]}})", 0),
                  "over 2^63 - 1"));
  EXPECT_TRUE(
      has(refusal(R"({"q":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0]}})", 1), "'q'"));
}

TEST(SafetensorsHeader, RangesCoverTheDataWithoutOverlapOrHole) {
  const auto two = [](const std::string& second) {
    return "{" + kQ + R"(,"w":{"dtype":"F32","shape":[2],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(parse(two("[24,32]"), "w", 32).bytes, 8u);
  EXPECT_TRUE(has(refusal(two("[20,28]"), 28), "tensor 'w': data_offsets [20, 28] overlap"));
  EXPECT_TRUE(has(refusal(two("[0,8]"), 24), "overlap"));
  EXPECT_TRUE(has(refusal(two("[28,36]"), 36), "tensor 'w': data_offsets [28, 36] leave a hole"));
  EXPECT_TRUE(has(refusal(R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12), "leave a hole"));
  EXPECT_EQ(refusal(two("[24,32]"), 31), "x.safetensors: header promises 32 bytes of data, file has 31");
  EXPECT_EQ(refusal(two("[24,32]"), 33), "x.safetensors: header promises 32 bytes of data, file has 33");
}

TEST(SafetensorsHeader, EmptyTensorsMayStandAnywhere) {
  const std::string json = R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[24,24]},)" + kQ +
                           R"(,"d":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})";
  EXPECT_EQ(parse(json, "e", 24).bytes, 0u);
  EXPECT_EQ(parse(json, "q", 24).bytes, 24u);
}

TEST(SafetensorsHeader, ListsWhatThereIsWhenTheNameIsMissingOrWrong) {
  std::string json = "{" + kQ;
  std::string offset = "24";
  for (int i = 0; i < 9; ++i) {
    json += R"(,"layer.)" + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[24,24]})";
  }
  json += "}";
  const std::string wrong = refusal(json, 24, "Q");
  EXPECT_TRUE(has(wrong, "no tensor 'Q'"));
  EXPECT_TRUE(has(wrong, "'q'"));
  EXPECT_TRUE(has(wrong, "and 2 more"));
  EXPECT_TRUE(has(refusal(json, 24, ""), "name a tensor, x.safetensors:NAME"));
  EXPECT_TRUE(has(refusal("{}", 0), "it holds no tensor"));
  EXPECT_TRUE(has(refusal(R"({"__metadata__":{"a":"b"}})", 0, "__metadata__"), "no tensor '__metadata__'"));
}

TEST(SafetensorsHeader, RefusesJsonThatIsNotAHeader) {
  const std::string head = R"({"q":{"dtype":"F32","shape":[2,3],"data_offsets":)";
  const std::pair<std::string, std::string> cases[] = {
      {"", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {"\xef\xbb\xbf{}", "does not begin with '{'"},
      {"{", "not valid JSON"},
      {"{" + kQ, "not valid JSON"},
      {"{" + kQ + ",}", "not valid JSON"},
      {"{" + kQ + "} x", "not valid JSON"},
      {"{" + kQ + "}{}", "not valid JSON"},
      {"{" + kQ + "}/* */", "not valid JSON"},
      // The JSON parser would stop at a zero byte and call it the end.
      {"{" + kQ + "}" + std::string(1, '\0') + "garbage", "zero byte"},
      {"{\"\xff\":{}}", "not valid JSON"},
      {R"({"\ud800":{}})", "not valid JSON"},
      {R"({"q":1})", "tensor 'q': is not an object, but the number 1"},
      {R"({"q":null})", "but null"},
      {R"({"q":[]})", "but an array"},
      {R"({"q":true})", "but a boolean"},
      {R"({"q":"x"})", "but the string 'x'"},
      {R"({"q":{}})", "dtype is missing"},
      {R"({"q":{"dtype":"F32","shape":[2,3]}})", "data_offsets is missing"},
      {R"({"q":{"dtype":"F32","data_offsets":[0,24]}})", "shape is missing"},
      {R"({"q":{"dtype":"F32","dtype":"F32"}})", "dtype comes twice"},
      {R"({"q":{"dtype":"F32","extra":1}})", "unknown key 'extra'"},
      {R"({"q":{"dtype":32}})", "dtype holds the number 32"},
      {R"({"q":{"dtype":["F32"]}})", "dtype holds an array"},
      {R"({"q":{"shape":"2,3"}})", "shape holds the string"},
      {R"({"q":{"shape":6}})", "shape holds the number 6"},
      {R"({"q":{"shape":{"0":2}}})", "shape holds an object"},
      {R"({"q":{"shape":[[2],3]}})", "shape holds an array"},
      {R"({"q":{"shape":[-2,3]}})", "shape holds the negative number -2"},
      {R"({"q":{"shape":[2.0,3]}})", "shape holds the number '2.0'"},
      {R"({"q":{"shape":[1e3]}})", "shape holds the number '1e3'"},
      {R"({"q":{"shape":[18446744073709551616]}})", "no 64-bit integer"},
      {R"({"q":{"shape":["2"]}})", "shape holds the string '2'"},
      {head + "[0]}}", "data_offsets needs two numbers"},
      {head + "[]}}", "data_offsets needs two numbers"},
      {head + "[0,12,24]}}", "more than two numbers"},
      {head + "[0,-24]}}", "data_offsets holds the negative number"},
      {head + "[0,24.0]}}", "data_offsets holds the number '24.0'"},
      {head + "24}}", "data_offsets holds the number 24"},
      {R"({"__metadata__":{"a":1}})", "__metadata__ holds the number 1"},
      {R"({"__metadata__":{"a":{"b":"c"}}})", "__metadata__ holds an object"},
      {R"({"__metadata__":["a"]})", "an array"},
      {"{" + kQ + "," + kQ + "}", "tensor 'q' comes twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "comes twice"},
  };
  for (const auto& [json, part] : cases) EXPECT_TRUE(has(refusal(json), part)) << json;
}

TEST(SafetensorsHeader, NestingIsRefusedAtItsFirstLevelTooMany) {
  // A recursive reader runs out of stack on this; ours must not even see the end.
  std::string bomb = R"({"q":)";
  bomb += std::string(1'000'000, '[');
  EXPECT_TRUE(has(refusal(bomb), "is not an object, but an array"));
  std::string objects;
  for (int i = 0; i < 200'000; ++i) objects += R"({"a":)";
  EXPECT_TRUE(has(refusal(objects), "tensor 'a': unknown key 'a'"));
}

TEST(SafetensorsHeader, HostileNamesCannotForgeTheMessage) {
  const std::string message =
      refusal(R"({"a\nok: all fine\u001b[2J":{"dtype":"Q7","shape":[],"data_offsets":[0,0]}})", 0);
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_TRUE(has(message, R"('a\x0aok: all fine\x1b[2J')"));
  const std::string longest = refusal(R"({")" + std::string(5000, 'n') + R"(":1})");
  EXPECT_LT(longest.size(), 200u);
}

TEST(SafetensorsHeader, LengthIsCheckedBeforeItIsBelieved) {
  const auto offset = [](const std::string& prefix, std::uint64_t size) {
    return safetensors_data_offset("x.safetensors", std::as_bytes(std::span(prefix)), size);
  };
  EXPECT_EQ(offset(test::little_endian(92, 8), 100), 100u);
  EXPECT_TRUE(
      has(test::message_of<DataError>([&] { offset(test::little_endian(93, 8), 100); }), "past the end"));
  // 100 MB is the reference implementation's limit.
  EXPECT_EQ(offset(test::little_endian(100'000'000, 8), std::uint64_t{1} << 40), 100'000'008u);
  for (const std::uint64_t length : {std::uint64_t{100'000'001}, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    EXPECT_TRUE(has(
        test::message_of<DataError>([&] { offset(test::little_endian(length, 8), std::uint64_t{1} << 40); }),
        "over the limit"));
  }
  EXPECT_TRUE(has(test::message_of<DataError>([&] { offset("1234567", 7); }), "7 bytes"));
}

TEST(SafetensorsHeader, WrittenHeadersAreAlignedAndReadBack) {
  for (const std::string name : {"q", "layer.10/out", "with \"quotes\" and \\", "\xc3\xa9t\xc3\xa9", "a:b"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const std::vector<index_t> shape{2, 1021, 3};
      const std::string header = format_safetensors_header("o.safetensors", name, shape, dtype);
      EXPECT_EQ(header.size() % 8, 0u);
      EXPECT_EQ(safetensors_data_offset("o", std::as_bytes(std::span(header)).first(8), header.size()),
                header.size());
      const StoredTensor t = parse(header.substr(8), name, 2 * 1021 * 3 * size_of(dtype));
      EXPECT_EQ(t.shape, shape);
      EXPECT_EQ(t.type, stored_as(dtype));
      EXPECT_EQ(t.offset, header.size());
    }
  }
  const auto refused = [](const std::string& name) {
    return test::message_of<DataError>(
        [&] { format_safetensors_header("o.safetensors", name, {}, DType::f32); });
  };
  EXPECT_TRUE(has(refused("__metadata__"), "reserved"));
  EXPECT_TRUE(has(refused("\xff"), "not UTF-8"));
}

}  // namespace
}  // namespace ringattn
