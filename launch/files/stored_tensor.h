// Where a tensor lies in a file and how its elements are stored, and the arithmetic on shapes that a hostile
// header must not be able to overflow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn {

// Element types as files have them. u2 and v2 are how .npy stores bfloat16: only an explicit dtype tells.
enum class FileType : std::uint8_t { f16, f32, f64, bf16, u2, v2 };

std::string_view name_of(FileType t);  // "f16", ..., "<u2", "<V2"
constexpr std::size_t size_of(FileType t) { return t == FileType::f64 ? 8 : t == FileType::f32 ? 4 : 2; }
FileType stored_as(DType t);  // f32, f16, bf16

// What a program that was asked for `asked` gets from elements stored as `stored`. Throws DataError beginning
// with `file` and naming the option that would settle it: f64 is rounded only for an explicit f32, 16 bits
// without a float type are taken as bfloat16 only for an explicit bf16, nothing else is converted.
DType delivered_as(const std::string& file, FileType stored, std::optional<DType> asked);

struct StoredTensor {
  FileType type = FileType::f32;
  std::vector<index_t> shape;
  std::uint64_t offset = 0;  // of the first element, from the start of the file
  std::uint64_t bytes = 0;   // of all elements
};

// NumPy and PyTorch stop at 64 dimensions; more is a sign of a hostile file.
inline constexpr std::size_t kMaxRank = 64;

// Bytes of a dense tensor with elements of `bits` bits (safetensors has types below a byte). Throws DataError
// beginning with `what` if a dimension is negative, there are more than kMaxRank, or the product of `bits`
// and the dimensions that are not zero passes 2^63 - 1, which is a tensor of 1 EiB: then no partial product
// of them can overflow either.
std::uint64_t checked_bytes(const std::string& what, std::span<const index_t> shape, unsigned bits);

std::string shape_text(std::span<const index_t> shape);  // "[2, 3]"

}  // namespace ringattn
