// Files that NumPy, ml_dtypes and the safetensors crate wrote (tests/data/golden/make.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "launch/files/tensor_file.h"
#include "tests/files/scratch.h"

namespace ringattn {
namespace {

using test::has;

const std::string kGolden = RINGATTN_TEST_DATA "/golden/";

// All rows of a [2, 5, 3] file, as bytes.
std::string all_rows(const std::string& spec, std::optional<DType> dtype = std::nullopt) {
  const TensorFile file = TensorFile::open(spec, dtype);
  EXPECT_EQ(file.shape(), (std::vector<index_t>{2, 5, 3}));
  std::string bytes(30 * size_of(file.dtype()), '\0');
  const Segment all{0, 5, 1};
  file.read(std::span(&all, 1), std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// -3, -2.75, ... 4.25: the tensor of make.py.
std::vector<float> quarters() {
  std::vector<float> values(30);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (static_cast<float>(i) - 12) / 4;
  return values;
}
// Exact in bfloat16: the upper half of the float.
std::string as_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float v : values)
    bits.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16));
  return test::raw(bits);
}

TEST(Golden, NumpyFloatsOfEveryVersion) {
  EXPECT_EQ(all_rows(kGolden + "numpy_f4.npy"), test::raw(quarters()));
  EXPECT_EQ(all_rows(kGolden + "numpy_version_2.npy"), test::raw(quarters()));
  EXPECT_EQ(all_rows(kGolden + "numpy_version_3.npy"), test::raw(quarters()));
  EXPECT_EQ(all_rows(kGolden + "numpy_f8.npy", DType::f32), test::raw(quarters()));
}

TEST(Golden, NumpyHalfs) {
  const std::string bytes = all_rows(kGolden + "numpy_f2.npy");
  // The payload follows a header of 128 bytes; the elements are not touched on the way.
  EXPECT_EQ(bytes, test::contents(kGolden + "numpy_f2.npy").substr(128));
  // -3 is 1 10000 1000000000 in binary16 and 0 is 0.
  EXPECT_EQ(bytes.substr(0, 2), std::string("\x00\xc2", 2));
  EXPECT_EQ(bytes.substr(24, 2), std::string(2, '\0'));
}

TEST(Golden, BfloatsOfMlDtypesNeedAnExplicitType) {
  const std::string path = kGolden + "ml_dtypes_bf16.npy";
  EXPECT_EQ(all_rows(path, DType::bf16), as_bf16(quarters()));
  EXPECT_TRUE(
      has(test::message_of<DataError>([&] { TensorFile::open(path, std::nullopt); }), "--dtype bf16"));
}

TEST(Golden, TensorsOfTheSafetensorsCrate) {
  const std::string path = kGolden + "crate.safetensors";
  EXPECT_EQ(all_rows(path + ":q"), test::raw(quarters()));
  EXPECT_EQ(all_rows(path + ":v"), as_bf16(quarters()));
  EXPECT_EQ(all_rows(path + ":k"), all_rows(kGolden + "numpy_f2.npy"));
  EXPECT_EQ(TensorFile::open(path + ":empty", std::nullopt).shape(), (std::vector<index_t>{1, 0, 3}));
  EXPECT_TRUE(
      has(test::message_of<DataError>([&] { TensorFile::open(path + ":ids", std::nullopt); }), "I64"));
}

TEST(Golden, FortranOrderAndByteOrderAreNamed) {
  // Case A27 tests 1 and 2: read as C order element (0, 1) would be 4, read as little-endian 1.0 would be
  // 4.6e-41.
  EXPECT_TRUE(has(test::message_of<DataError>(
                      [&] { TensorFile::open(kGolden + "numpy_fortran_order.npy", std::nullopt); }),
                  "fortran_order"));
  EXPECT_TRUE(has(
      test::message_of<DataError>([&] { TensorFile::open(kGolden + "numpy_big_endian.npy", std::nullopt); }),
      "'>f4'"));
}

TEST(Golden, OurFilesAreTheirFiles) {
  // What we write of the same tensor is what NumPy wrote, byte for byte.
  const test::Scratch scratch;
  const Segment all{0, 5, 1};
  for (const auto& [name, dtype] :
       {std::pair{"numpy_f4.npy", DType::f32}, std::pair{"numpy_f2.npy", DType::f16},
        std::pair{"ml_dtypes_bf16.npy", DType::bf16}}) {
    const std::string values = all_rows(kGolden + name, dtype);
    PendingFile out = PendingFile::create(scratch.path("o.npy"), {2, 5, 3}, dtype);
    out.write(std::span(&all, 1), 1, std::as_bytes(std::span(values)));
    out.commit();
    EXPECT_EQ(test::contents(scratch.path("o.npy")), test::contents(kGolden + name)) << name;
  }
}

}  // namespace
}  // namespace ringattn
