#include "launch/files/tensor_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "launch/files/file_handle.h"
#include "launch/files/npy_header.h"
#include "launch/files/row_runs.h"
#include "launch/files/safetensors_header.h"
#include "launch/files/stored_tensor.h"
#include "launch/files/tensor_spec.h"
#include "src/error.h"

namespace ringattn {
namespace {

constexpr std::size_t kRowAxis = 1;

std::vector<std::byte> read_bytes(const FileHandle& file, std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  file.read(offset, data);
  return data;
}

StoredTensor find_tensor(const FileHandle& file, const TensorSpec& spec) {
  const std::uint64_t size = file.size();
  const bool npy = spec.format == FileFormat::npy;
  // First the few bytes that hold the header's length, then the header: its length is checked in between.
  const auto prefix =
      read_bytes(file, 0, std::min<std::uint64_t>(size, npy ? kNpyPrefix : kSafetensorsPrefix));
  if (npy) {
    const std::size_t offset = npy_data_offset(spec.path, prefix, size);
    return parse_npy_header(spec.path, read_bytes(file, 0, offset), size);
  }
  const std::uint64_t offset = safetensors_data_offset(spec.path, prefix, size);
  const auto json = read_bytes(file, kSafetensorsPrefix, offset - kSafetensorsPrefix);
  return parse_safetensors_header(spec.path, spec.tensor,
                                  {reinterpret_cast<const char*>(json.data()), json.size()}, size);
}

// Rounds to nearest even, which is what the conversion of the language does. A finite number that float
// cannot hold would come out as infinity without a word, so it is refused.
void round_to_float(const std::string& spec, std::span<const std::byte> doubles, std::byte* floats) {
  for (std::size_t i = 0; i < doubles.size() / sizeof(double); ++i) {
    double wide;
    std::memcpy(&wide, doubles.data() + i * sizeof wide, sizeof wide);
    const auto narrow = static_cast<float>(wide);
    if (std::isinf(narrow) && !std::isinf(wide)) {
      throw DataError(spec + ": holds " + std::to_string(wide) + ", which is beyond f32");
    }
    std::memcpy(floats + i * sizeof narrow, &narrow, sizeof narrow);
  }
}

}  // namespace

struct TensorFile::Impl {
  std::string spec;
  FileHandle file;
  StoredTensor tensor;
  DType dtype;

  void read_rounded(const ByteRun& run, std::span<std::byte> to, std::vector<std::byte>& doubles) const;
};

TensorFile::TensorFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;

TensorFile TensorFile::open(const std::string& spec, std::optional<DType> dtype) {
  const TensorSpec parsed = parse_spec(spec);
  FileHandle file = FileHandle::open_to_read(parsed.path);
  StoredTensor tensor = find_tensor(file, parsed);
  const DType delivered = delivered_as(spec, tensor.type, dtype);
  if (tensor.shape.size() <= kRowAxis) {
    throw DataError(spec + ": shape " + shape_text(tensor.shape) +
                    " has no axis of rows, [batch, rows, ...]");
  }
  return TensorFile(std::make_unique<Impl>(Impl{spec, std::move(file), std::move(tensor), delivered}));
}

const std::string& TensorFile::spec() const { return impl_->spec; }
const std::vector<index_t>& TensorFile::shape() const { return impl_->tensor.shape; }
DType TensorFile::dtype() const { return impl_->dtype; }

// `run.shard` counts bytes of doubles here; the floats take half of them.
void TensorFile::Impl::read_rounded(const ByteRun& run, std::span<std::byte> to,
                                    std::vector<std::byte>& doubles) const {
  // Piece by piece, so that a shard needs no second copy of itself in doubles.
  constexpr std::uint64_t kPiece = std::uint64_t{256} * 1024;
  for (std::uint64_t done = 0; done < run.bytes; done += kPiece) {
    doubles.resize(std::min(kPiece, run.bytes - done));
    file.read(tensor.offset + run.tensor + done, doubles);
    round_to_float(spec, doubles, to.data() + (run.shard + done) / 2);
  }
}

void TensorFile::read(std::span<const Segment> segments, std::span<std::byte> to) const {
  const StoredTensor& tensor = impl_->tensor;
  const bool rounded = tensor.type == FileType::f64;
  const std::size_t element = size_of(tensor.type);
  const std::uint64_t stored = shard_bytes(impl_->spec, tensor.shape, kRowAxis, element, segments);
  const std::uint64_t wanted = rounded ? stored / 2 : stored;
  if (to.size() != wanted) {
    throw UsageError(impl_->spec + ": room for " + std::to_string(to.size()) + " bytes, the segments hold " +
                     std::to_string(wanted));
  }
  std::vector<std::byte> doubles;
  for_each_run(tensor.shape, kRowAxis, element, segments, [&](const ByteRun& run) {
    if (rounded) {
      impl_->read_rounded(run, to, doubles);
    } else {
      impl_->file.read(tensor.offset + run.tensor, to.subspan(run.shard, run.bytes));
    }
  });
}

}  // namespace ringattn
