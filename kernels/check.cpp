#include "kernels/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "src/error.h"

namespace ringattn {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& allowed) {
  throw UsageError(name + " is " + value + "; " + allowed);
}

template <std::size_t n>
std::string text(const std::array<index_t, n>& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < n; ++i) result.append(i ? ", " : "").append(std::to_string(shape[i]));
  return result + "]";
}

const char* text(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "unknown";
}

std::string text(const Range& range) {
  return std::string("[").append(std::to_string(range.begin)).append(", ").append(std::to_string(range.end)) +
         ")";
}

void check_positive(const char* name, index_t value) {
  if (value < 1) refuse(name, std::to_string(value), "at least 1 is needed");
}

void check_dim(const char* name, index_t value) {
  if (value < 1 || value > kLargestDim) refuse(name, std::to_string(value), "1 to 512 is possible");
}

void check_bytes(const std::string& name, std::span<const std::byte> span, std::size_t bytes,
                 std::size_t alignment) {
  if (span.size() != bytes)
    refuse(name + " size", std::to_string(span.size()), std::to_string(bytes) + " bytes are needed");
  if (reinterpret_cast<std::uintptr_t>(span.data()) % alignment != 0)
    refuse(name, "not aligned", "an address divisible by " + std::to_string(alignment) + " is needed");
}

}  // namespace

void check_not_negative(const char* name, index_t value) {
  if (value < 0) refuse(name, std::to_string(value), "it cannot be negative");
}

void check_threads(int threads) { check_positive("threads", threads); }

void check_shape(const HeadShape& shape) {
  check_positive("batch", shape.batch);
  check_positive("num_heads", shape.num_heads);
  check_positive("num_heads_kv", shape.num_heads_kv);
  if (shape.num_heads % shape.num_heads_kv != 0)
    refuse("num_heads", std::to_string(shape.num_heads),
           "a multiple of num_heads_kv, " + std::to_string(shape.num_heads_kv) + ", is needed");
  check_dim("head_dim", shape.head_dim);
  check_dim("head_dim_v", shape.head_dim_v);
}

void check_config(const KernelConfig& config) {
  check_shape(config.shape);
  check_not_negative("q_rows", config.q_rows);
  check_threads(config.threads);
  if (!std::isfinite(config.softmax_scale))
    refuse("softmax_scale", std::to_string(config.softmax_scale), "a finite value is needed");
}

void check_tensor(const char* name, const ConstTensorView& tensor, DType dtype,
                  const std::array<index_t, 4>& shape) {
  const std::string argument(name);
  if (tensor.dtype != dtype)
    refuse(argument + " dtype", text(tensor.dtype), std::string(text(dtype)) + " is needed");
  if (tensor.shape != shape) refuse(argument + " shape", text(tensor.shape), text(shape) + " is needed");
  check_not_negative((argument + " rows").c_str(), tensor.rows());
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (!empty && shape[3] > 1 && tensor.stride[3] != 1)
    refuse(argument + " stride of the last dimension", std::to_string(tensor.stride[3]), "1 is needed");
  if (!tensor.data && tensor.rows() > 0) refuse(argument, "null", "it has rows");
}

void check_lse(const LseView& lse, const std::array<index_t, 3>& shape) {
  if (lse.data && lse.shape != shape) refuse("lse shape", text(lse.shape), text(shape) + " is needed");
}

void check_lse(const ConstLseView& lse, const std::array<index_t, 3>& shape) {
  if (lse.shape != shape) refuse("lse shape", text(lse.shape), text(shape) + " is needed");
  if (!lse.data && shape[2] > 0) refuse("lse", "null", "it has rows");
}

void check_rotation(const Rotation& rotation, index_t head_dim) {
  if (rotation.dim < 0 || rotation.dim > head_dim || rotation.dim % 2 != 0)
    refuse("rotation dim", std::to_string(rotation.dim),
           "an even number from 0 to head_dim, " + std::to_string(head_dim) + ", is needed");
  if (rotation.dim > 0 && !rotation.angles) refuse("rotation angles", "empty", "rotation dim is not 0");
}

void check_block(std::span<const std::byte> block, std::size_t bytes, std::size_t alignment) {
  check_bytes("block", block, bytes, alignment);
}

void check_gradients(std::span<const std::byte> gradients, std::size_t bytes, std::size_t alignment) {
  check_bytes("gradients", gradients, bytes, alignment);
}

void check_reserved(bool reserved, const char* call) {
  if (!reserved) refuse(call, "called", "reserve(Pass::backward) has to come first");
}

void check_tile(const Tile& tile, index_t q_rows, index_t k_rows) {
  if (tile.q.empty() || tile.k.empty() || tile.band.lo > tile.band.hi) return;
  if (tile.q.begin >= 0 && tile.q.end <= q_rows && tile.k.begin >= 0 && tile.k.end <= k_rows) return;
  refuse("tiles: one", "queries " + text(tile.q) + " x keys " + text(tile.k),
         "it leaves the " + std::to_string(q_rows) + " query rows x " + std::to_string(k_rows) + " key rows");
}

}  // namespace ringattn
