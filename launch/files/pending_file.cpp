// PendingFile of tensor_file.h: a hidden file beside the final one, which takes the final name when complete.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "launch/files/file_handle.h"
#include "launch/files/npy_header.h"
#include "launch/files/row_runs.h"
#include "launch/files/safetensors_header.h"
#include "launch/files/stored_tensor.h"
#include "launch/files/tensor_file.h"
#include "launch/files/tensor_spec.h"
#include "src/error.h"

namespace ringattn {
namespace {

namespace fs = std::filesystem;

// Depends on nothing but the arguments, so that every process finds the data at the same offset.
std::string format_header(const TensorSpec& spec, const std::vector<index_t>& shape, DType dtype) {
  if (spec.format == FileFormat::npy) return format_npy_header(shape, dtype);
  if (spec.tensor.empty()) {
    throw DataError(spec.path + ": name the tensor to be written, " + spec.path + ":NAME");
  }
  return format_safetensors_header(spec.path, spec.tensor, shape, dtype);
}

fs::path folder_of(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// Also refuses a symbolic link: the rename would replace the link and not what it points to.
void refuse_unless_replaceable(const std::string& path) {
  struct ::stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    throw DataError(path + ": " + system_error_text(errno));
  }
  if (!S_ISREG(status.st_mode))
    throw DataError(path + ": exists and is not a regular file; it is not replaced");
}

// Opens the first path that is free and puts it into `temporary`. The process number keeps processes apart,
// the counter the files of one process and what an earlier process of the same number left behind when it was
// killed.
FileHandle create_temporary(const fs::path& final_path, fs::path& temporary) {
  constexpr int kTries = 10'000;
  constexpr std::size_t kKept = 200;  // of the name, so that ours stays under the usual 255 bytes
  std::string stem(1, '.');
  stem += final_path.filename().string().substr(0, kKept);
  stem += '.' + std::to_string(::getpid()) + '.';
  for (int n = 0; n < kTries; ++n) {
    temporary = folder_of(final_path) / (stem + std::to_string(n) + ".partial");
    if (auto file = FileHandle::create_new(temporary.string(), final_path.string())) return std::move(*file);
  }
  throw DataError(final_path.string() + ": " + std::to_string(kTries) + " temporary files '" + stem +
                  "*' exist");
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// That the creator and this process mean the same tensor: same size, same header. Writing by another shape
// would put rows on top of other ranks' rows without any error.
void refuse_other_tensor(const FileHandle& file, const std::string& header, std::uint64_t size) {
  if (file.size() != size) {
    throw DataError(file.name() + ": has " + std::to_string(file.size()) +
                    " bytes, the tensor to be written takes " + std::to_string(size));
  }
  std::string found(header.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(found.data(), found.size())));
  if (found != header)
    throw DataError(file.name() + ": was created for a tensor of another type, shape or name");
}

}  // namespace

struct PendingFile::Impl {
  std::string spec;
  TensorSpec target;
  std::vector<index_t> shape;
  std::size_t element_bytes;
  std::string header;  // what the file begins with; the data follows
  std::uint64_t file_bytes;
  fs::path temporary;
  std::optional<FileHandle> file;
  bool creator = false, committed = false;

  // Everything that can be refused without touching a file.
  Impl(const std::string& name, const std::vector<index_t>& tensor_shape, DType dtype)
      : spec(name), target(parse_spec(name)), shape(tensor_shape), element_bytes(size_of(dtype)) {
    const std::uint64_t data = checked_bytes(spec, shape, static_cast<unsigned>(8 * element_bytes));
    header = format_header(target, shape, dtype);
    file_bytes = header.size() + data;
  }
  ~Impl() {
    if (creator && !committed) ::unlink(temporary.c_str());
  }
};

PendingFile::PendingFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PendingFile::~PendingFile() = default;
PendingFile::PendingFile(PendingFile&&) noexcept = default;
PendingFile& PendingFile::operator=(PendingFile&&) noexcept = default;

PendingFile PendingFile::create(const std::string& spec, const std::vector<index_t>& shape, DType dtype) {
  auto impl = std::make_unique<Impl>(spec, shape, dtype);
  refuse_unless_replaceable(impl->target.path);
  impl->file = create_temporary(impl->target.path, impl->temporary);
  impl->creator = true;  // from here on the destructor removes the file
  impl->file->reserve(impl->file_bytes);
  impl->file->write(0, bytes_of(impl->header));
  return PendingFile(std::move(impl));
}

PendingFile PendingFile::attach(const std::string& spec, const fs::path& temporary,
                                const std::vector<index_t>& shape, DType dtype) {
  auto impl = std::make_unique<Impl>(spec, shape, dtype);
  impl->temporary = temporary;
  impl->file = FileHandle::open_to_write(temporary.string());
  refuse_other_tensor(*impl->file, impl->header, impl->file_bytes);
  return PendingFile(std::move(impl));
}

const fs::path& PendingFile::temporary() const { return impl_->temporary; }

void PendingFile::write(std::span<const Segment> segments, int axis, std::span<const std::byte> from) {
  Impl& self = *impl_;
  if (self.committed) throw UsageError(self.spec + ": written to after commit");
  const auto rows = static_cast<std::size_t>(axis);
  const std::uint64_t bytes = shard_bytes(self.spec, self.shape, rows, self.element_bytes, segments);
  if (from.size() != bytes) {
    throw UsageError(self.spec + ": " + std::to_string(from.size()) + " bytes given, the segments hold " +
                     std::to_string(bytes));
  }
  for_each_run(self.shape, rows, self.element_bytes, segments, [&](const ByteRun& run) {
    self.file->write(self.header.size() + run.tensor, from.subspan(run.shard, run.bytes));
  });
}

void PendingFile::commit() {
  Impl& self = *impl_;
  if (!self.creator) throw UsageError(self.spec + ": only the process that created the file commits it");
  if (self.committed) throw UsageError(self.spec + ": committed twice");
  // In this order: the name must not point to data that a power cut could still take away. What other
  // processes wrote to the file is flushed with it; the pages are the file's and not a process's.
  self.file->flush_to_disk();
  if (std::rename(self.temporary.c_str(), self.target.path.c_str()) != 0) {
    throw DataError(self.target.path + ": " + system_error_text(errno));
  }
  self.committed = true;
  flush_folder_to_disk(folder_of(self.target.path).string());
}

}  // namespace ringattn
