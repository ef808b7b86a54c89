// A kernel whose arithmetic is sums of integers, on a stream: enough for the ring to show what it orders.
#pragma once
#include <vector>

#include "kernels/kernel.h"
#include "tests/comm_cuda/stream_work.h"

namespace ringattn::test {

// Forward: out_i = sum of k_j over the visible keys j. Backward: dk_j = sum of q_i over the queries i that
// see key j, and dq_i = out_i. q_i and k_j are integers that tell positions apart; a block is k, dK is dk.
class ToyKernel final : public Kernel {
 public:
  ToyKernel(cudaStream_t stream, std::vector<std::uint64_t> q, std::vector<std::uint64_t> k);

  std::string name() const override { return "toy"; }
  std::size_t block_bytes(index_t k_rows) const override { return static_cast<std::size_t>(k_rows) * 8; }
  std::size_t gradient_bytes(index_t k_rows) const override { return block_bytes(k_rows); }
  std::size_t workspace_bytes() const override { return 0; }
  void reserve(Pass) override {}
  Buffer allocate(std::size_t bytes) const override;
  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override;
  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override;
  void clear_gradients(std::span<std::byte> gradients) const override;

  // The ring loops are given what is loaded and finished; the rest of Kernel is not theirs to call.
  void load_queries(const ConstTensorView&, const Rotation&) override {}
  void load_block(const ConstTensorView&, const ConstTensorView&, const Rotation&,
                  std::span<std::byte>) const override {}
  void finish(const TensorView&, const LseView&) override {}
  void load_rows(const ConstTensorView&, const Rotation&, const ConstTensorView&, const ConstTensorView&,
                 const ConstLseView&, const Poll&) override {}
  void finish_rows(const TensorView&, const Rotation&) override {}
  void finish_gradients(std::span<const std::byte>, const TensorView&, const TensorView&,
                        const Rotation&) const override {}

  void clear_rows();                                 // queues: out or dq is 0
  void write_own_block(std::span<std::byte> block);  // queues: the block is k
  std::span<std::byte> rows() const { return rows_.bytes(); }

 private:
  cudaStream_t stream_;
  std::vector<std::uint64_t> q_, k_;
  DeviceBlock rows_;  // out or dq
};

}  // namespace ringattn::test
