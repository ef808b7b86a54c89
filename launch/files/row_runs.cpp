#include "launch/files/row_runs.h"

#include "launch/files/stored_tensor.h"
#include "src/error.h"

namespace ringattn {
namespace {

std::uint64_t product(std::span<const index_t> dims) {
  std::uint64_t p = 1;
  for (const index_t d : dims) p *= static_cast<std::uint64_t>(d);
  return p;
}

std::string text_of(const Segment& s) {
  return "segment {begin " + std::to_string(s.begin) + ", count " + std::to_string(s.count) + ", stride " +
         std::to_string(s.stride) + "}";
}

// The last row, begin + (count - 1) * stride, is compared without being formed: it may overflow.
bool fits(const Segment& s, index_t rows) {
  if (s.count < 0 || s.stride < 1 || s.begin < 0) return false;
  return s.count == 0 || (s.begin < rows && s.count - 1 <= (rows - 1 - s.begin) / s.stride);
}

}  // namespace

std::uint64_t shard_bytes(const std::string& what, std::span<const index_t> shape, std::size_t axis,
                          std::size_t element_bytes, std::span<const Segment> segments) {
  if (axis >= shape.size()) {
    throw UsageError(what + ": shape " + shape_text(shape) + " has no axis " + std::to_string(axis));
  }
  const index_t rows = shape[axis];
  index_t held = 0;
  for (const Segment& s : segments) {
    if (!fits(s, rows))
      throw UsageError(what + ": " + text_of(s) + " leaves the " + std::to_string(rows) + " rows");
    // Else the sum could overflow and promise less room than the runs need.
    if (s.count > rows - held) {
      throw UsageError(what + ": segments hold more rows than the " + std::to_string(rows) + " there are");
    }
    held += s.count;
  }
  return product(shape.first(axis)) * static_cast<std::uint64_t>(held) * product(shape.subspan(axis + 1)) *
         element_bytes;
}

void for_each_run(std::span<const index_t> shape, std::size_t axis, std::size_t element_bytes,
                  std::span<const Segment> segments, const std::function<void(const ByteRun&)>& visit) {
  const std::uint64_t outer = product(shape.first(axis));
  const auto rows = static_cast<std::uint64_t>(shape[axis]);
  const std::uint64_t row_bytes = product(shape.subspan(axis + 1)) * element_bytes;
  if (row_bytes == 0 || rows == 0) return;
  std::uint64_t shard = 0;
  for (std::uint64_t o = 0; o < outer; ++o) {
    for (const Segment& s : segments) {
      const bool dense = s.stride == 1;
      const auto count = static_cast<std::uint64_t>(s.count);
      const std::uint64_t run_bytes = dense ? count * row_bytes : row_bytes;
      const index_t runs = dense ? (s.count > 0 ? 1 : 0) : s.count;
      for (index_t t = 0; t < runs; ++t) {
        const std::uint64_t row = o * rows + static_cast<std::uint64_t>(s.position(t));
        visit({.tensor = row * row_bytes, .shard = shard, .bytes = run_bytes});
        shard += run_bytes;
      }
    }
  }
}

}  // namespace ringattn
