#include "launch/files/tensor_spec.h"

#include "launch/files/printable.h"
#include "src/error.h"

namespace ringattn {

TensorSpec parse_spec(const std::string& spec) {
  // Before ".npy", because a tensor's name may end in anything.
  const std::string ending = ".safetensors";
  if (const std::size_t colon = spec.find(ending + ":"); colon != std::string::npos) {
    const std::size_t end = colon + ending.size();
    return {.format = FileFormat::safetensors, .path = spec.substr(0, end), .tensor = spec.substr(end + 1)};
  }
  if (spec.ends_with(ending)) return {.format = FileFormat::safetensors, .path = spec, .tensor = ""};
  if (spec.ends_with(".npy")) return {.format = FileFormat::npy, .path = spec, .tensor = ""};
  if (spec.find(".npy:") != std::string::npos) {
    throw DataError(spec + ": a .npy file holds one tensor and takes no name after a colon");
  }
  throw DataError(printable(spec) + ": unknown format; allowed are FILE.npy and FILE.safetensors:NAME");
}

}  // namespace ringattn
