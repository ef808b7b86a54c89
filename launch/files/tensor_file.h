// Tensors in files, by the rows of one shard: "q.npy" or "qkv.safetensors:q". Reading touches only the bytes
// of the rows asked for; a file that is being written has its name only when it is complete.
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/layout.h"
#include "src/types.h"

namespace ringattn {

class TensorFile {
 public:
  // Reads and checks the header and the file's size. `dtype` is what the caller asked for (nullopt: what the
  // file says): bf16 is needed for <u2 and <V2 .npy files, f32 rounds an f8 file; anything else must equal
  // the file's. Throws DataError naming the file and the field: not found, not a regular file, malformed
  // header, unsupported type, byte order or Fortran order, rank of the tensor, size that differs from the
  // header's promise.
  static TensorFile open(const std::string& spec, std::optional<DType> dtype);
  ~TensorFile();
  TensorFile(TensorFile&&) noexcept;
  TensorFile& operator=(TensorFile&&) noexcept;

  const std::string& spec() const;
  const std::vector<index_t>& shape() const;
  DType dtype() const;  // of the elements that read() delivers
  // Axis 1 of a [batch, rows, ...] tensor, the rows of `segments` one after the other, dense, in dtype().
  // to.size() must be batch * rows * the rest * size_of(dtype()).
  void read(std::span<const Segment> segments, std::span<std::byte> to) const;

 private:
  struct Impl;
  explicit TensorFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// An output file that several ranks fill. One rank creates it under a temporary name beside the final one
// with its full size reserved; the others attach to that temporary name; after all have written, the creator
// commits.
class PendingFile {
 public:
  // Throws DataError naming the path if the folder is missing, not writable or full, or if the final name
  // exists and is not a regular file; nothing is left behind. An existing file is replaced only by commit().
  static PendingFile create(const std::string& spec, const std::vector<index_t>& shape, DType dtype);
  static PendingFile attach(const std::string& spec, const std::filesystem::path& temporary,
                            const std::vector<index_t>& shape, DType dtype);
  ~PendingFile();  // the creator removes the temporary file if it was not committed
  PendingFile(PendingFile&&) noexcept;
  PendingFile& operator=(PendingFile&&) noexcept;

  const std::filesystem::path& temporary() const;
  // Axis `axis` (1 for tensors, 2 for lse [batch, heads, rows]) of the tensor holds the sequence; `from` is
  // dense with `segments`' rows in place of that axis.
  void write(std::span<const Segment> segments, int axis, std::span<const std::byte> from);
  void commit();  // creator only: flush to disk, rename

 private:
  struct Impl;
  explicit PendingFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ringattn
