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

// The process number keeps processes apart, the counter the files of one process and what an earlier process
// of the same number left behind when it was killed.
FileHandle create_temporary(const fs::path& final_path) {
  constexpr int kTries = 10'000;
  constexpr std::size_t kKept = 200;  // of the name, so that ours stays under the usual 255 bytes
  std::string stem(1, '.');
  stem += final_path.filename().string().substr(0, kKept);
  stem += '.' + std::to_string(::getpid()) + '.';
  for (int n = 0; n < kTries; ++n) {
    const fs::path candidate = folder_of(final_path) / (stem + std::to_string(n) + ".partial");
    if (auto file = FileHandle::create_new(candidate.string())) return std::move(*file);
  }
  throw DataError(final_path.string() + ": " + std::to_string(kTries) + " temporary files '" + stem +
                  ".*' exist");
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// That the creator and this process mean the same tensor: same size, same header.
void refuse_other_tensor(const FileHandle& file, const std::string& header, std::uint64_t size) {
  if (file.size() != size) {
    throw DataError(file.path() + ": has " + std::to_string(file.size()) +
                    " bytes, the tensor to be written takes " + std::to_string(size));
  }
  std::string found(header.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(found.data(), found.size())));
  if (found != header)
    throw DataError(file.path() + ": was created for a tensor of another type, shape or name");
}

}  // namespace

struct PendingFile::Impl {
  std::string spec;
  fs::path final_path, temporary;
  std::vector<index_t> shape;
  std::size_t element_bytes = 0;
  std::uint64_t data_offset = 0;
  std::optional<FileHandle> file;
  bool creator = false, committed = false;

  ~Impl() {
    if (creator && !committed) ::unlink(temporary.c_str());
  }
};

PendingFile::PendingFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PendingFile::~PendingFile() = default;
PendingFile::PendingFile(PendingFile&&) noexcept = default;
PendingFile& PendingFile::operator=(PendingFile&&) noexcept = default;

PendingFile PendingFile::create(const std::string& spec, const std::vector<index_t>& shape, DType dtype) {
  const TensorSpec parsed = parse_spec(spec);
  const std::uint64_t bytes = checked_bytes(spec, shape, static_cast<unsigned>(8 * size_of(dtype)));
  const std::string header = format_header(parsed, shape, dtype);
  refuse_unless_replaceable(parsed.path);
  auto impl = std::make_unique<Impl>();
  impl->spec = spec;
  impl->final_path = parsed.path;
  impl->shape = shape;
  impl->element_bytes = size_of(dtype);
  impl->data_offset = header.size();
  impl->file = create_temporary(impl->final_path);
  impl->temporary = impl->file->path();
  impl->creator = true;  // from here on the destructor removes the file
  impl->file->reserve(header.size() + bytes);
  impl->file->write(0, bytes_of(header));
  return PendingFile(std::move(impl));
}

PendingFile PendingFile::attach(const std::string& spec, const fs::path& temporary,
                                const std::vector<index_t>& shape, DType dtype) {
  const TensorSpec parsed = parse_spec(spec);
  const std::uint64_t bytes = checked_bytes(spec, shape, static_cast<unsigned>(8 * size_of(dtype)));
  const std::string header = format_header(parsed, shape, dtype);
  auto impl = std::make_unique<Impl>();
  impl->spec = spec;
  impl->final_path = parsed.path;
  impl->temporary = temporary;
  impl->shape = shape;
  impl->element_bytes = size_of(dtype);
  impl->data_offset = header.size();
  impl->file = FileHandle::open_to_write(temporary.string());
  refuse_other_tensor(*impl->file, header, header.size() + bytes);
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
    self.file->write(self.data_offset + run.tensor, from.subspan(run.shard, run.bytes));
  });
}

void PendingFile::commit() {
  Impl& self = *impl_;
  if (!self.creator) throw UsageError(self.spec + ": only the process that created the file commits it");
  if (self.committed) throw UsageError(self.spec + ": committed twice");
  self.file->flush_to_disk();
  if (std::rename(self.temporary.c_str(), self.final_path.c_str()) != 0) {
    throw DataError(self.final_path.string() + ": " + system_error_text(errno));
  }
  self.committed = true;
  flush_folder_to_disk(folder_of(self.final_path).string());
}

}  // namespace ringattn
