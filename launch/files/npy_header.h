// The header of a .npy file, from bytes to a StoredTensor and back. Pure: it opens no file. The format is
// NumPy's (numpy.lib.format): magic, version, length, then a Python dictionary with exactly three keys.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "launch/files/stored_tensor.h"

namespace ringattn {

// Magic (6), version (2) and the longest form of the length (4): what must be read first.
inline constexpr std::size_t kNpyPrefix = 12;
// NumPy refuses longer dictionaries too, but only after reading them.
inline constexpr std::size_t kMaxNpyDictionary = 10'000;

// Bytes before the data, from the file's first min(kNpyPrefix, file_size) bytes. At most kNpyPrefix +
// kMaxNpyDictionary and at most file_size, so it is safe to read that many next. Throws DataError beginning
// with `file` for a wrong magic, an unknown version, a length over the limit or past the end of the file.
std::size_t npy_data_offset(const std::string& file, std::span<const std::byte> prefix,
                            std::uint64_t file_size);

// `start` is the file up to its data. Read are versions 1 to 3, C order, the types <f2 <f4 <f8 <u2 <V2 |V2,
// and the header must promise exactly the bytes that the file has. Everything else is a DataError that begins
// with `file` and names the field.
StoredTensor parse_npy_header(const std::string& file, std::span<const std::byte> start,
                              std::uint64_t file_size);

// Version 1.0 as NumPy writes it, padded so that the data begins at a multiple of 64. bfloat16 is '<V2',
// which is what ml_dtypes' arrays are saved as.
std::string format_npy_header(std::span<const index_t> shape, DType dtype);

}  // namespace ringattn
