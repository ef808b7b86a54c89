// A kernel that passes every call on: what is planted in it is the one thing that it does differently.
#pragma once
#include <memory>
#include <vector>

#include "kernels/kernel.h"

namespace ringattn::test {

class ForwardingKernel : public Kernel {
 public:
  explicit ForwardingKernel(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
  std::string name() const override;
  std::size_t block_bytes(index_t k_rows) const override;
  std::size_t workspace_bytes() const override;
  void reserve(Pass pass) override;
  Buffer allocate(std::size_t bytes) const override;
  void load_queries(const ConstTensorView& q, const Rotation& rotation) override;
  void load_block(const ConstTensorView& k, const ConstTensorView& v, const Rotation& rotation,
                  std::span<std::byte> block) const override;
  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override;
  void finish(const TensorView& out, const LseView& lse) override;
  std::size_t gradient_bytes(index_t k_rows) const override;
  void clear_gradients(std::span<std::byte> gradients) const override;
  void load_rows(const ConstTensorView& q, const Rotation& rotation, const ConstTensorView& dout,
                 const ConstTensorView& out, const ConstLseView& lse, const Poll& poll) override;
  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override;
  void finish_rows(const TensorView& dq, const Rotation& rotation) override;
  void finish_gradients(std::span<const std::byte> gradients, const TensorView& dk, const TensorView& dv,
                        const Rotation& rotation) const override;

 protected:
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace ringattn::test
