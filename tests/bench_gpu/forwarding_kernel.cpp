#include "tests/bench_gpu/forwarding_kernel.h"

namespace ringattn::test {

std::string ForwardingKernel::name() const { return kernel_->name(); }
std::size_t ForwardingKernel::block_bytes(index_t k_rows) const { return kernel_->block_bytes(k_rows); }
std::size_t ForwardingKernel::workspace_bytes() const { return kernel_->workspace_bytes(); }
void ForwardingKernel::reserve(Pass pass) { kernel_->reserve(pass); }
Buffer ForwardingKernel::allocate(std::size_t bytes) const { return kernel_->allocate(bytes); }
void ForwardingKernel::load_queries(const ConstTensorView& q, const Rotation& rotation) {
  kernel_->load_queries(q, rotation);
}
void ForwardingKernel::load_block(const ConstTensorView& k, const ConstTensorView& v,
                                  const Rotation& rotation, std::span<std::byte> block) const {
  kernel_->load_block(k, v, rotation, block);
}
void ForwardingKernel::attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                              const Poll& poll) {
  kernel_->attend(tiles, block, k_rows, poll);
}
void ForwardingKernel::finish(const TensorView& out, const LseView& lse) { kernel_->finish(out, lse); }
std::size_t ForwardingKernel::gradient_bytes(index_t k_rows) const { return kernel_->gradient_bytes(k_rows); }
void ForwardingKernel::clear_gradients(std::span<std::byte> gradients) const {
  kernel_->clear_gradients(gradients);
}
void ForwardingKernel::load_rows(const ConstTensorView& q, const Rotation& rotation,
                                 const ConstTensorView& dout, const ConstTensorView& out,
                                 const ConstLseView& lse, const Poll& poll) {
  kernel_->load_rows(q, rotation, dout, out, lse, poll);
}
void ForwardingKernel::attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block,
                                       index_t k_rows, const GradientBlock& gradients, const Poll& poll) {
  kernel_->attend_backward(tiles, block, k_rows, gradients, poll);
}
void ForwardingKernel::finish_rows(const TensorView& dq, const Rotation& rotation) {
  kernel_->finish_rows(dq, rotation);
}
void ForwardingKernel::finish_gradients(std::span<const std::byte> gradients, const TensorView& dk,
                                        const TensorView& dv, const Rotation& rotation) const {
  kernel_->finish_gradients(gradients, dk, dv, rotation);
}

}  // namespace ringattn::test
