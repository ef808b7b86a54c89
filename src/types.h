// Plain data shared by every layer: element types, index ranges, bands, tiles and views of the caller's
// tensors.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ringattn {

// Rows, positions, counts and offsets are 64-bit everywhere.
using index_t = std::int64_t;

// Element type of the tensors in the caller's memory. Arithmetic is fp32 whatever the element type is.
enum class DType : std::uint8_t { f32, bf16, f16 };

constexpr std::size_t size_of(DType t) { return t == DType::f32 ? 4 : 2; }
std::string_view name_of(DType t);          // "f32", "bf16", "f16"
DType dtype_from_name(std::string_view s);  // throws UsageError naming the value and the allowed ones

// Where a tensor lies: in the memory of the host, or in that of an NVIDIA GPU.
enum class MemorySpace : std::uint8_t { host, cuda };
std::string_view name_of(MemorySpace space);  // "host", "cuda"

// Half-open [begin, end).
struct Range {
  index_t begin = 0, end = 0;
  constexpr index_t count() const { return end > begin ? end - begin : 0; }
  constexpr bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// A bound that no difference of two positions reaches; far from overflow when added to a position.
inline constexpr index_t kUnbounded = index_t{1} << 60;

// Longest sequence: the difference of two positions, and such a difference plus a window, stay below
// kUnbounded.
inline constexpr index_t kMaxSeqlen = index_t{1} << 58;

// Key j is visible to query i iff lo <= j - i <= hi.
struct Band {
  index_t lo = -kUnbounded, hi = kUnbounded;
  constexpr bool contains(index_t j_minus_i) const { return lo <= j_minus_i && j_minus_i <= hi; }
  friend bool operator==(const Band&, const Band&) = default;
};

// The (query, key) pairs of a rectangle that lie in a diagonal band. In a mask i and j are global positions;
// in a plan and in a kernel they are local rows of the query shard and of the key/value block at hand.
// Example: causal attention over 5 tokens is the one tile {q [0,5), k [0,5), band {-inf, 0}}: 15 pairs.
struct Tile {
  Range q, k;
  Band band;
  friend bool operator==(const Tile&, const Tile&) = default;
};

// Number of (i, j) in the tile with j - i in its band. Exact, constant time. Throws UsageError if it is 2^63
// or more.
index_t visible_pairs(const Tile&);

// The same pairs with the ranges and the band cut to what can be reached, so that two ways to write one tile
// compare equal. A tile without pairs becomes Tile{{0,0},{0,0},{0,0}}.
Tile normalized(const Tile&);

// A view of the caller's memory: [batch, rows, heads, dim], strides in elements, last stride 1.
template <class Void>
struct BasicTensorView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::array<index_t, 4> shape{};
  std::array<index_t, 4> stride{};
  MemorySpace space = MemorySpace::host;

  index_t batch() const { return shape[0]; }
  index_t rows() const { return shape[1]; }
  index_t heads() const { return shape[2]; }
  index_t dim() const { return shape[3]; }
  index_t offset(index_t b, index_t row, index_t head) const {
    return b * stride[0] + row * stride[1] + head * stride[2];
  }
};
using TensorView = BasicTensorView<void>;
using ConstTensorView = BasicTensorView<const void>;

// Strides of a dense [batch, rows, heads, dim] array.
constexpr std::array<index_t, 4> dense_strides(const std::array<index_t, 4>& s) {
  return {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
}
inline TensorView dense_view(void* data, DType t, std::array<index_t, 4> shape,
                             MemorySpace space = MemorySpace::host) {
  return {data, t, shape, dense_strides(shape), space};
}
inline ConstTensorView dense_view(const void* data, DType t, std::array<index_t, 4> shape,
                                  MemorySpace space = MemorySpace::host) {
  return {data, t, shape, dense_strides(shape), space};
}
inline ConstTensorView as_const(const TensorView& t) { return {t.data, t.dtype, t.shape, t.stride, t.space}; }

// Log-sum-exp of the scaled logits of each query, natural logarithm, fp32, [batch, heads, rows] with last
// stride 1. A null view as an output means that the caller does not want it.
template <class Float>
struct BasicLseView {
  Float* data = nullptr;
  std::array<index_t, 3> shape{};
  std::array<index_t, 3> stride{};
  MemorySpace space = MemorySpace::host;
};
using LseView = BasicLseView<float>;
using ConstLseView = BasicLseView<const float>;
inline LseView dense_lse(float* data, index_t batch, index_t heads, index_t rows,
                         MemorySpace space = MemorySpace::host) {
  return {data, {batch, heads, rows}, {heads * rows, rows, 1}, space};
}
inline ConstLseView as_const(const LseView& lse) { return {lse.data, lse.shape, lse.stride, lse.space}; }

// The shapes that a kernel needs; the same on every rank.
struct HeadShape {
  index_t batch = 1;
  index_t num_heads = 1;
  index_t num_heads_kv = 1;
  index_t head_dim = 0;
  index_t head_dim_v = 0;
  index_t group() const { return num_heads / num_heads_kv; }  // query heads that read one KV head
  friend bool operator==(const HeadShape&, const HeadShape&) = default;
};

}  // namespace ringattn
