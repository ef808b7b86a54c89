// The one interface between the ring and the arithmetic. A kernel holds the queries and the softmax state of
// one rank's rows; the ring hands it blocks of keys and values with the tiles that are visible in them. It
// knows nothing of masks, layouts, documents or ranks.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "src/types.h"

namespace ringattn {

// Called from the thread that called attend(), a few times a millisecond, so that a transfer can make
// progress while the kernel computes. May be empty.
using Poll = std::function<void()>;

// How the leading `dim` elements of a row turn before use; dim = 0: not at all. `angles` fills dim/2 cosines
// and sines for a local row and is called from several threads at once.
struct Rotation {
  index_t dim = 0;
  bool interleaved = false;  // pairs (2e, 2e+1) instead of (e, e + dim/2)
  std::function<void(index_t row, std::span<float> cos, std::span<float> sin)> angles;
};

// Memory of a kernel's own space. CPU: 64-byte aligned, zeroed.
struct Buffer {
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data;
  std::size_t size = 0;
  std::span<std::byte> bytes() const { return {data.get(), size}; }
};

struct KernelConfig {
  HeadShape shape{};
  DType dtype = DType::f32;  // of the caller's tensors and of the wire
  double softmax_scale = 1;  // any finite value, 0 and negative included
  index_t q_rows = 0;        // local rows of this rank
  int threads = 1;
  std::string isa = "auto";  // CPU instruction set, one of cpu_isas(); "auto" = the best this machine runs
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string name() const = 0;  // "cpu/AVX3", "reference"

  // Bytes of a block of k_rows keys and values as it travels; the same on every rank and instruction set.
  virtual std::size_t block_bytes(index_t k_rows) const = 0;
  // Bytes that the kernel holds for queries, state and scratch, stated before they are allocated.
  virtual std::size_t workspace_bytes() const = 0;
  virtual Buffer allocate(std::size_t bytes) const = 0;  // throws OutOfMemory naming the size

  // Takes q [batch, q_rows, num_heads, head_dim], turned and scaled, and forgets everything seen so far.
  virtual void load_queries(const ConstTensorView& q, const Rotation& rotation) = 0;
  // Writes k [batch, k_rows, num_heads_kv, head_dim] (turned) and v [.., head_dim_v] as one block.
  virtual void load_block(const ConstTensorView& k, const ConstTensorView& v, const Rotation& rotation,
                          std::span<std::byte> block) const = 0;
  // Adds what the tiles' queries see of a block of k_rows rows. Tiles are disjoint and in local rows.
  // Deterministic: the bits do not depend on the number of threads nor on `poll`.
  virtual void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                      const Poll& poll) = 0;
  // Writes out [batch, q_rows, num_heads, head_dim_v], rounded once to the tensor's dtype (to nearest even),
  // and lse if it is not null. A row that saw nothing: out 0, lse -inf. The state survives.
  virtual void finish(const TensorView& out, const LseView& lse) = 0;
};

}  // namespace ringattn
