// What must hold for any bytes whatever: used by the mutation test and by the fuzzer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "launch/files/npy_header.h"
#include "launch/files/safetensors_header.h"
#include "src/error.h"

namespace ringattn::test {

enum class Verdict : std::uint8_t { refused, accepted, broken };

// An accepted header promises a tensor that has the bytes of its shape and lies inside the file.
inline Verdict judge(const StoredTensor& t, std::uint64_t file_size) {
  const std::uint64_t bytes = checked_bytes("", t.shape, static_cast<unsigned>(8 * size_of(t.type)));
  return t.offset <= file_size && t.bytes <= file_size - t.offset && t.bytes == bytes ? Verdict::accepted
                                                                                      : Verdict::broken;
}

// Parses `file` as the whole contents of a .npy file. Any exception but DataError passes through.
inline Verdict judge_npy(std::span<const std::byte> file) {
  try {
    const std::size_t offset =
        npy_data_offset("f", file.first(std::min(file.size(), kNpyPrefix)), file.size());
    if (offset > file.size()) return Verdict::broken;
    return judge(parse_npy_header("f", file.first(offset), file.size()), file.size());
  } catch (const DataError&) {
    return Verdict::refused;
  }
}

inline Verdict judge_safetensors(std::span<const std::byte> file) {
  try {
    const std::uint64_t offset =
        safetensors_data_offset("f", file.first(std::min(file.size(), kSafetensorsPrefix)), file.size());
    if (offset > file.size()) return Verdict::broken;
    const auto json = file.subspan(kSafetensorsPrefix, offset - kSafetensorsPrefix);
    return judge(parse_safetensors_header("f", "q", {reinterpret_cast<const char*>(json.data()), json.size()},
                                          file.size()),
                 file.size());
  } catch (const DataError&) {
    return Verdict::refused;
  }
}

}  // namespace ringattn::test
