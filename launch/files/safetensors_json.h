// The JSON text at the head of a .safetensors file, read into a list of entries. Grammar only: what the
// offsets and the shapes mean together is checked in safetensors_header.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn {

struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<index_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets, from the end of the header
};

// Exactly {"name": {"dtype": "..", "shape": [..], "data_offsets": [b, e]}, .., "__metadata__": {"k": "v"}}:
// nothing deeper is followed, no key may be missing, unknown or come twice, no tensor name may come twice.
// Entries are in the order of the text. Throws DataError beginning with `file` and naming the tensor and the
// field. Memory is proportional to the text.
std::vector<SafetensorsEntry> read_safetensors_json(const std::string& file, std::string_view text);

}  // namespace ringattn
