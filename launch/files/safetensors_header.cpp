#include "launch/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "launch/files/printable.h"
#include "launch/files/safetensors_json.h"
#include "src/error.h"

namespace ringattn {
namespace {

// All types of the format with their bits: tensors of other types may stand beside ours, and their sizes are
// part of the check that the data is covered.
struct TypeInfo {
  std::string_view name;
  unsigned bits;
  std::optional<FileType> type = std::nullopt;  // of those that can be read
};
constexpr std::array kTypes{
    TypeInfo{"F32", 32, FileType::f32},
    TypeInfo{"F16", 16, FileType::f16},
    TypeInfo{"BF16", 16, FileType::bf16},
    TypeInfo{"F64", 64, FileType::f64},
    TypeInfo{"BOOL", 8},
    TypeInfo{"U8", 8},
    TypeInfo{"I8", 8},
    TypeInfo{"U16", 16},
    TypeInfo{"I16", 16},
    TypeInfo{"U32", 32},
    TypeInfo{"I32", 32},
    TypeInfo{"U64", 64},
    TypeInfo{"I64", 64},
    TypeInfo{"C64", 64},
    TypeInfo{"F4", 4},
    TypeInfo{"F6_E2M3", 6},
    TypeInfo{"F6_E3M2", 6},
    TypeInfo{"F8_E4M3", 8},
    TypeInfo{"F8_E5M2", 8},
    TypeInfo{"F8_E8M0", 8},
    TypeInfo{"F8_E4M3FNUZ", 8},
    TypeInfo{"F8_E5M2FNUZ", 8},
};

std::string name_in(const std::string& file, const SafetensorsEntry& entry) {
  return file + ": tensor " + printable(entry.name);
}

const TypeInfo& type_of(const std::string& file, const SafetensorsEntry& entry) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& t) { return t.name == entry.dtype; });
  if (found == kTypes.end())
    throw DataError(name_in(file, entry) + ": unknown dtype " + printable(entry.dtype));
  return *found;
}

std::string range_text(std::uint64_t begin, std::uint64_t end) {
  std::string text(1, '[');
  text += std::to_string(begin) + ", " + std::to_string(end) + ']';
  return text;
}

// The shape is believed only as far as the range bears it out.
void check_size(const std::string& file, const SafetensorsEntry& entry) {
  const TypeInfo& type = type_of(file, entry);
  const std::uint64_t bytes = checked_bytes(name_in(file, entry), entry.shape, type.bits);
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    throw DataError(name_in(file, entry) + ": data_offsets " + range_text(entry.begin, entry.end) + ", but " +
                    entry.dtype + " " + shape_text(entry.shape) + " takes " + std::to_string(bytes) +
                    " bytes");
  }
}

// Orders the entries by their place in the file and returns where the last one ends.
std::uint64_t check_cover(const std::string& file, std::vector<SafetensorsEntry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != covered) {
      throw DataError(name_in(file, entry) + ": data_offsets " + range_text(entry.begin, entry.end) +
                      (entry.begin < covered ? " overlap another tensor, which ends at "
                                             : " leave a hole: the tensors before it end at ") +
                      std::to_string(covered));
    }
    covered = entry.end;
  }
  return covered;
}

std::string list_of_names(const std::vector<SafetensorsEntry>& entries) {
  constexpr std::size_t kListed = 8;
  std::string text = entries.empty() ? "it holds no tensor" : "it holds ";
  for (std::size_t i = 0; i < std::min(entries.size(), kListed); ++i) {
    text += (i == 0 ? "" : ", ") + printable(entries[i].name);
  }
  if (entries.size() > kListed) text += " and " + std::to_string(entries.size() - kListed) + " more";
  return text;
}

}  // namespace

std::uint64_t safetensors_data_offset(const std::string& file, std::span<const std::byte> prefix,
                                      std::uint64_t file_size) {
  if (prefix.size() < kSafetensorsPrefix) {
    throw DataError(file + ": has " + std::to_string(prefix.size()) +
                    " bytes, the length of the header takes 8");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kSafetensorsPrefix; i-- > 0;) {
    length = length << 8 | std::to_integer<std::uint64_t>(prefix[i]);
  }
  if (length > kMaxSafetensorsHeader) {
    throw DataError(file + ": header length " + std::to_string(length) + " is over the limit of " +
                    std::to_string(kMaxSafetensorsHeader) + " bytes");
  }
  if (kSafetensorsPrefix + length > file_size) {
    throw DataError(file + ": header length " + std::to_string(length) +
                    " reaches past the end of the file (" + std::to_string(file_size) + " bytes)");
  }
  return kSafetensorsPrefix + length;
}

StoredTensor parse_safetensors_header(const std::string& file, const std::string& tensor,
                                      std::string_view json, std::uint64_t file_size) {
  std::vector<SafetensorsEntry> entries = read_safetensors_json(file, json);
  for (const SafetensorsEntry& entry : entries) check_size(file, entry);
  // All of this before the name is looked up: a damaged file is called damaged whatever is asked of it.
  const std::uint64_t promised = check_cover(file, entries);
  const std::uint64_t offset = kSafetensorsPrefix + json.size();
  if (file_size < offset || file_size - offset != promised) {
    throw DataError(file + ": header promises " + std::to_string(promised) + " bytes of data, file has " +
                    std::to_string(file_size < offset ? 0 : file_size - offset));
  }
  if (tensor.empty()) throw DataError(file + ": name a tensor, " + file + ":NAME; " + list_of_names(entries));
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const SafetensorsEntry& e) { return e.name == tensor; });
  if (found == entries.end()) {
    throw DataError(file + ": no tensor " + printable(tensor) + "; " + list_of_names(entries));
  }
  const TypeInfo& type = type_of(file, *found);
  if (!type.type) {
    throw DataError(name_in(file, *found) + ": dtype " + found->dtype +
                    " is not read; allowed are F32, F16, BF16");
  }
  return {.type = *type.type,
          .shape = found->shape,
          .offset = offset + found->begin,
          .bytes = found->end - found->begin};
}

std::string format_safetensors_header(const std::string& file, const std::string& tensor,
                                      std::span<const index_t> shape, DType dtype) {
  if (tensor == "__metadata__")
    throw DataError(file + ": '__metadata__' is reserved and cannot name a tensor");
  const std::uint64_t bytes = checked_bytes(file, shape, static_cast<unsigned>(8 * size_of(dtype)));
  std::string json(1, '{');
  try {
    json += nlohmann::json(tensor).dump();
  } catch (const nlohmann::json::exception&) {
    throw DataError(file + ": tensor name " + printable(tensor) + " is not UTF-8");
  }
  json += std::string(R"(:{"dtype":")") +
          (dtype == DType::f32   ? "F32"
           : dtype == DType::f16 ? "F16"
                                 : "BF16") +
          R"(","shape":)" + shape_text(shape) + R"(,"data_offsets":)" + range_text(0, bytes) + "}}";
  // The reference implementation aligns the data so; blanks after the object are part of the format.
  json.append((8 - json.size() % 8) % 8, ' ');
  std::string header;
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i) {
    header += static_cast<char>(json.size() >> (8 * i) & 255);
  }
  return header + json;
}

}  // namespace ringattn
