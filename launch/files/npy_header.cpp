#include "launch/files/npy_header.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "launch/files/printable.h"
#include "launch/files/python_literal.h"
#include "src/error.h"

namespace ringattn {
namespace {

// Layout of the file: 6 bytes of magic, major and minor version, the dictionary's length in 2 (version 1) or
// 4 bytes, the dictionary, the data.
constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kVersionEnd = 8;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::size_t little_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::size_t>(bytes[i]);
  return value;
}

// '<' and '|' (no order, for void) are all that little-endian machines write. '=' never is in a file.
FileType type_from_descr(const std::string& file, const std::string& descr) {
  if (descr == "<f2") return FileType::f16;
  if (descr == "<f4") return FileType::f32;
  if (descr == "<f8") return FileType::f64;
  if (descr == "<u2") return FileType::u2;
  if (descr == "<V2" || descr == "|V2") return FileType::v2;
  const std::string why = descr.starts_with('>') ? " is big-endian" : " is not read";
  throw DataError(file + ": descr " + printable(descr) + why +
                  "; allowed are '<f2', '<f4', '<f8' and, for bfloat16, '<u2', '<V2'");
}

// The dictionary's values, each present at most once while reading and exactly once at the end.
struct Fields {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<index_t>> shape;
};

void read_field(PythonLiteral& in, Fields& fields) {
  const std::string key = in.string("a key");
  in.expect(':');
  const auto once = [&](bool seen) {
    if (seen) in.fail("the key " + printable(key) + " comes twice");
  };
  if (key == "descr") {
    once(fields.descr.has_value());
    fields.descr = in.string("descr");
  } else if (key == "fortran_order") {
    once(fields.fortran_order.has_value());
    fields.fortran_order = in.boolean("fortran_order");
  } else if (key == "shape") {
    once(fields.shape.has_value());
    fields.shape = in.tuple("shape");
  } else {
    in.fail("unknown key " + printable(key));
  }
}

Fields read_dictionary(PythonLiteral& in) {
  Fields fields;
  in.expect('{');
  // As in Python: items are separated by commas, one more comma may follow the last.
  while (!in.accept('}')) {
    read_field(in, fields);
    if (!in.accept(',')) {
      in.expect('}');
      break;
    }
  }
  in.expect_padding_and_newline();
  if (!fields.descr) in.fail("the key 'descr' is missing");
  if (!fields.fortran_order) in.fail("the key 'fortran_order' is missing");
  if (!fields.shape) in.fail("the key 'shape' is missing");
  return fields;
}

}  // namespace

std::size_t npy_data_offset(const std::string& file, std::span<const std::byte> prefix,
                            std::uint64_t file_size) {
  // Field by field, so that a file that ends early is told where.
  const std::string_view text = as_text(prefix);
  if (!text.starts_with(kMagic)) {
    throw DataError(file + ": does not begin with the .npy magic, but with " +
                    printable(text.substr(0, kMagic.size())));
  }
  if (text.size() < kVersionEnd) throw DataError(file + ": ends inside the version of its header");
  const auto major = std::to_integer<int>(prefix[6]), minor = std::to_integer<int>(prefix[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw DataError(file + ": version " + std::to_string(major) + "." + std::to_string(minor) +
                    " of the .npy format; read are 1.0, 2.0 and 3.0");
  }
  const std::size_t dictionary_begin = kVersionEnd + (major == 1 ? 2 : 4);
  if (text.size() < dictionary_begin) throw DataError(file + ": ends inside the length of its header");
  const std::size_t length = little_endian(prefix.subspan(kVersionEnd, dictionary_begin - kVersionEnd));
  // Both before anybody reads or allocates that much.
  if (length > kMaxNpyDictionary) {
    throw DataError(file + ": header length " + std::to_string(length) + " is over the limit of " +
                    std::to_string(kMaxNpyDictionary) + " bytes");
  }
  if (dictionary_begin + length > file_size) {
    throw DataError(file + ": header length " + std::to_string(length) +
                    " reaches past the end of the file (" + std::to_string(file_size) + " bytes)");
  }
  return dictionary_begin + length;
}

StoredTensor parse_npy_header(const std::string& file, std::span<const std::byte> start,
                              std::uint64_t file_size) {
  const std::size_t offset =
      npy_data_offset(file, start.first(std::min(start.size(), kNpyPrefix)), file_size);
  if (start.size() != offset) {
    throw DataError(file + ": header of " + std::to_string(offset) + " bytes, " +
                    std::to_string(start.size()) + " given");
  }
  const std::size_t dictionary_begin = start[6] == std::byte{1} ? 10 : 12;
  PythonLiteral in(file, as_text(start.subspan(dictionary_begin)));
  const Fields fields = read_dictionary(in);
  StoredTensor tensor{
      .type = type_from_descr(file, *fields.descr), .shape = *fields.shape, .offset = offset, .bytes = 0};
  if (*fields.fortran_order) {
    throw DataError(file + ": fortran_order is True; only C order is read");
  }
  tensor.bytes = checked_bytes(file, tensor.shape, static_cast<unsigned>(8 * size_of(tensor.type)));
  // Too long is as wrong as too short: then it is not the tensor that the header describes.
  if (file_size - offset != tensor.bytes) {
    throw DataError(file + ": header promises " + std::to_string(tensor.bytes) + " bytes of data, file has " +
                    std::to_string(file_size - offset));
  }
  return tensor;
}

std::string format_npy_header(std::span<const index_t> shape, DType dtype) {
  const std::string_view descr = dtype == DType::f32 ? "<f4" : dtype == DType::f16 ? "<f2" : "<V2";
  // NumPy's spelling to the blank, so that equal tensors are equal files: "(5,)" but "(2, 3)", and a comma
  // after the last item of the dictionary.
  std::string tuple;
  for (const index_t dim : shape) tuple += std::to_string(dim) + (shape.size() == 1 ? "," : ", ");
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  std::string dictionary =
      "{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': (" + tuple + "), }";
  constexpr std::size_t kBegin = 10, kAlign = 64;
  const std::size_t end = (kBegin + dictionary.size() + 1 + kAlign - 1) / kAlign * kAlign;
  dictionary.append(end - kBegin - dictionary.size() - 1, ' ');
  dictionary += '\n';
  std::string header(kMagic);
  header +=
      {'\1', '\0', static_cast<char>(dictionary.size() & 255), static_cast<char>(dictionary.size() >> 8)};
  return header + dictionary;
}

}  // namespace ringattn
