// What a tensor is called on the command line: "q.npy", or "qkv.safetensors:q" for one of several in a file.
#pragma once
#include <cstdint>
#include <string>

namespace ringattn {

enum class FileFormat : std::uint8_t { npy, safetensors };

struct TensorSpec {
  FileFormat format = FileFormat::npy;
  std::string path;
  std::string tensor;  // of a .safetensors file; empty if the name was left out
};

// The part up to the first ".safetensors" that ends the text or is followed by ':' is the path; colons
// elsewhere belong to the path or to the name. Throws DataError for any other ending.
TensorSpec parse_spec(const std::string& spec);

}  // namespace ringattn
