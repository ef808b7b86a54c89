#include "launch/files/stored_tensor.h"

#include "src/error.h"

namespace ringattn {

std::string_view name_of(FileType t) {
  switch (t) {
    case FileType::f16:
      return "f16";
    case FileType::f32:
      return "f32";
    case FileType::f64:
      return "f64";
    case FileType::bf16:
      return "bf16";
    case FileType::u2:
      return "<u2";
    case FileType::v2:
      return "<V2";
  }
  return "?";
}

FileType stored_as(DType t) {
  return t == DType::f32 ? FileType::f32 : t == DType::f16 ? FileType::f16 : FileType::bf16;
}

DType delivered_as(const std::string& file, FileType stored, std::optional<DType> asked) {
  const std::string holds = file + ": holds " + std::string(name_of(stored));
  // Rounding loses digits and 16 bits can be anything: both only if the caller said so.
  if (stored == FileType::f64) {
    if (asked == DType::f32) return DType::f32;
    throw DataError(holds + ", which is not computed in; pass --dtype f32 to round it");
  }
  if (stored == FileType::u2 || stored == FileType::v2) {
    if (asked == DType::bf16) return DType::bf16;
    throw DataError(holds + ", 16 bits of unknown meaning; pass --dtype bf16 if they are bfloat16");
  }
  const DType own = stored == FileType::f32 ? DType::f32 : stored == FileType::f16 ? DType::f16 : DType::bf16;
  if (asked.value_or(own) != own) {
    throw DataError(holds + ", and --dtype asks for " + std::string(name_of(stored_as(*asked))));
  }
  return own;
}

std::uint64_t checked_bytes(const std::string& what, std::span<const index_t> shape, unsigned bits) {
  if (shape.size() > kMaxRank) {
    throw DataError(what + ": shape has " + std::to_string(shape.size()) + " dimensions, at most " +
                    std::to_string(kMaxRank) + " are read");
  }
  // In bits, and without the zeros: [0, 2^62, 4] has no bytes, but its rows would have 2^64.
  index_t product = static_cast<index_t>(bits);
  bool empty = false;
  for (const index_t dim : shape) {
    if (dim < 0) {
      throw DataError(what + ": shape " + shape_text(shape) + " has the negative dimension " +
                      std::to_string(dim));
    }
    empty |= dim == 0;
    if (dim != 0 && __builtin_mul_overflow(product, dim, &product)) {
      throw DataError(what + ": shape " + shape_text(shape) + " overflows 64 bits");
    }
  }
  if (empty) return 0;
  if (product % 8 != 0) {
    throw DataError(what + ": shape " + shape_text(shape) + " of " + std::to_string(bits) +
                    "-bit elements does not fill whole bytes");
  }
  return static_cast<std::uint64_t>(product / 8);
}

std::string shape_text(std::span<const index_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace ringattn
