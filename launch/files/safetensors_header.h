// The header of a .safetensors file: eight bytes of length, JSON, data. Pure: it opens no file. The rules are
// those of the format's reference implementation (the Rust crate's `validate`): every tensor's range has the
// size of its shape, and the ranges cover the data from 0 to the end without overlap or hole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "launch/files/stored_tensor.h"

namespace ringattn {

inline constexpr std::size_t kSafetensorsPrefix = 8;
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the reference implementation's limit

// Bytes before the data, from the file's first min(8, file_size) bytes. Throws DataError beginning with
// `file` if the length is over the limit or reaches past the end of the file.
std::uint64_t safetensors_data_offset(const std::string& file, std::span<const std::byte> prefix,
                                      std::uint64_t file_size);

// `json` is the text between the length and the data. Checks all tensors, then returns the one called
// `tensor`. Throws DataError beginning with `file` and naming the tensor and the field; if there is no such
// tensor, or `tensor` is empty, it lists the first few that there are.
StoredTensor parse_safetensors_header(const std::string& file, const std::string& tensor,
                                      std::string_view json, std::uint64_t file_size);

// Length and JSON of a file with this one tensor, padded with blanks to a multiple of 8. Throws DataError
// beginning with `file` if the name is not UTF-8 or is the reserved "__metadata__".
std::string format_safetensors_header(const std::string& file, const std::string& tensor,
                                      std::span<const index_t> shape, DType dtype);

}  // namespace ringattn
