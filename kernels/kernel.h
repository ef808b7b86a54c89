// The one interface between the ring and the arithmetic. A kernel holds the queries and the softmax state of
// one rank's rows; the ring hands it blocks of keys and values with the tiles that are visible in them. It
// knows nothing of masks, layouts, documents or ranks.
#pragma once
#include <algorithm>
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

// What a call works on: forward, or the gradients as well.
enum class Pass : std::uint8_t { forward, backward };

// dK and dV of a block, to which attend_backward adds. Its first bytes may be there before the last ones:
// `arrived` says how many may be touched. It also makes the transfer progress, and is called by the thread
// that called attend_backward alone. It throws when it has waited too long. Empty: all bytes are there.
struct GradientBlock {
  std::span<std::byte> bytes;
  bool fresh = false;  // it holds no sums yet, whatever its bytes are
  std::function<std::size_t()> arrived{};
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
  std::string isa = "auto";  // one of cpu_isas(), or a chapter of kernels/cuda; "auto" = the best that runs
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual std::string name() const = 0;  // "cpu/AVX3", "reference"

  // Bytes of a block of k_rows keys and values as it travels; the same on every rank and instruction set.
  virtual std::size_t block_bytes(index_t k_rows) const = 0;
  // Bytes that the kernel holds for queries, state and scratch.
  virtual std::size_t workspace_bytes() const = 0;
  // Makes room for that pass, forgetting everything seen so far. A new kernel has room for forward; room for
  // backward is room for forward, too. Throws OutOfMemory, and then has room for forward or throws again.
  virtual void reserve(Pass pass) = 0;
  virtual Buffer allocate(std::size_t bytes) const = 0;  // throws OutOfMemory naming the size

  // Takes q [batch, q_rows, num_heads, head_dim], turned and scaled, and forgets everything seen so far. q
  // must stay what it is until the last block has been attended.
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
  // attend() and then finish(), to the same bits, but rows may be written when they have seen all that they
  // will see. The state does not survive.
  virtual void attend_last(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                           const TensorView& out, const LseView& lse, const Poll& poll) {
    attend(tiles, block, k_rows, poll);
    finish(out, lse);
  }

  // Backward, after reserve(Pass::backward). With p_ij = exp(softmax_scale * q_i k_j - lse_i) and
  // delta_i = sum_e dout_ie out_ie (Dao et al., arXiv:2205.14135, algorithm 4; arXiv:2307.08691,
  // section 3.1):
  //   dv_j = sum_i p_ij dout_i,   ds_ij = p_ij (dout_i v_j - delta_i),
  //   dq_i = softmax_scale * sum_j ds_ij k_j,   dk_j = softmax_scale * sum_i ds_ij q_i,
  // i over the queries that see key j, of all heads that read its head; q and k turned, dq and dk turned
  // back.

  // Bytes of dK and dV of k_rows rows as they travel, fp32; the same on every rank and instruction set. All
  // bytes 0 is a gradient of 0.
  virtual std::size_t gradient_bytes(index_t k_rows) const = 0;
  // Sets dK and dV of a block to 0, where and in the order in which this kernel works.
  virtual void clear_gradients(std::span<std::byte> gradients) const {
    std::ranges::fill(gradients, std::byte{0});
  }
  // Takes the local rows and sets dq to 0: q as load_queries; dout and out [batch, q_rows, num_heads,
  // head_dim_v], lse [batch, num_heads, q_rows] of all keys, not of a hop. lse -inf: the row saw nothing, and
  // its gradients are 0. Calls `poll` between pieces of the work.
  virtual void load_rows(const ConstTensorView& q, const Rotation& rotation, const ConstTensorView& dout,
                         const ConstTensorView& out, const ConstLseView& lse, const Poll& poll) = 0;
  // Adds what the tiles' pairs contribute to dq, which stays here, and to dK and dV of the block, or makes
  // them, if the block is fresh. Tiles as in
  // attend. Deterministic: the bits do not depend on the number of threads, on `poll`, nor on when the bytes
  // of `gradients` arrive.
  virtual void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                               const GradientBlock& gradients, const Poll& poll) = 0;
  // Writes dq, turned back, rounded once to the tensor's dtype.
  virtual void finish_rows(const TensorView& dq, const Rotation& rotation) = 0;
  // Writes dk (turned back) and dv of a block likewise.
  virtual void finish_gradients(std::span<const std::byte> gradients, const TensorView& dk,
                                const TensorView& dv, const Rotation& rotation) const = 0;
};

}  // namespace ringattn
