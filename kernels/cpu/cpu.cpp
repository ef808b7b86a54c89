#include "kernels/cpu/cpu.h"

#include <cmath>
#include <numbers>

#include "kernels/check.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/run.h"
#include "src/error.h"

namespace ringattn {
namespace {

using namespace cpu;

// Splits at a power of two so that slope is in [1, 2).
Scaling scaling_of(double softmax_scale) {
  if (softmax_scale == 0) return {.factor = 0, .slope = 1};
  int exponent = 0;
  const double mantissa = std::frexp(softmax_scale, &exponent);  // 1/2 <= |mantissa| < 1
  const double slope = std::fabs(mantissa) * std::numbers::log2e;
  const int shift = slope < 1 ? -1 : 0;
  return {.factor = std::copysign(std::ldexp(1.0, exponent + shift), softmax_scale),
          .slope = static_cast<float>(std::ldexp(slope, -shift))};
}

class CpuKernel final : public Kernel {
 public:
  explicit CpuKernel(const KernelConfig& config)
      : config_(config),
        target_(target_named(config.isa)),
        scaling_(scaling_of(config.softmax_scale)),
        layout_(config.shape, config.q_rows),
        state_(allocate_zeroed(cpu_workspace_bytes(config), config.threads)),
        scratch_(reinterpret_cast<float*>(state_.data.get() + layout_.bytes)) {}

  std::string name() const override { return std::string("cpu/") + target_.name; }

  std::size_t block_bytes(index_t k_rows) const override {
    return cpu_block_bytes(config_.shape, config_.dtype, k_rows);
  }

  std::size_t workspace_bytes() const override { return state_.size; }

  Buffer allocate(std::size_t bytes) const override { return allocate_zeroed(bytes, config_.threads); }

  void load_queries(const ConstTensorView& q, const Rotation& rotation) override {
    const HeadShape& shape = config_.shape;
    check_tensor("q", q, config_.dtype, {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim});
    check_rotation(rotation, shape.head_dim);
    pack_queries(target_, q, rotation, scaling_.factor, layout_, state_.data.get(), config_.threads);
  }

  void load_block(const ConstTensorView& k, const ConstTensorView& v, const Rotation& rotation,
                  std::span<std::byte> block) const override {
    const HeadShape& shape = config_.shape;
    check_tensor("k", k, config_.dtype, {shape.batch, k.rows(), shape.num_heads_kv, shape.head_dim});
    check_tensor("v", v, config_.dtype, {shape.batch, k.rows(), shape.num_heads_kv, shape.head_dim_v});
    check_rotation(rotation, shape.head_dim);
    check_block(block, block_bytes(k.rows()), alignof(float));
    pack_block(target_, k, v, rotation, BlockLayout(shape, config_.dtype, k.rows()), block.data(),
               config_.threads);
  }

  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    check_block(block, block_bytes(k_rows), alignof(float));
    const Schedule schedule(tiles, config_.q_rows, k_rows);
    const BlockLayout block_layout(config_.shape, config_.dtype, k_rows);
    attend_block({.target = target_,
                  .shape = config_.shape,
                  .dtype = config_.dtype,
                  .threads = config_.threads,
                  .slope = scaling_.slope,
                  .state_layout = layout_,
                  .state = state_.data.get(),
                  .block_layout = block_layout,
                  .block = block.data(),
                  .k_rows = k_rows,
                  .scratch = scratch_,
                  .schedule = schedule},
                 poll);
  }

  void finish(const TensorView& out, const LseView& lse) override {
    const HeadShape& shape = config_.shape;
    check_tensor("out", as_const(out), out.dtype,
                 {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim_v});
    check_lse(lse, {shape.batch, shape.num_heads, config_.q_rows});
    unpack_output(target_, layout_, state_.data.get(), scaling_.slope, out, lse, config_.threads);
  }

 private:
  KernelConfig config_;
  const Target& target_;
  Scaling scaling_;
  StateLayout layout_;
  Buffer state_;  // groups, then scratch
  float* scratch_;
};

}  // namespace

std::unique_ptr<Kernel> make_cpu_kernel(const KernelConfig& config) {
  check_config(config);
  return std::make_unique<CpuKernel>(config);
}

std::size_t cpu_block_bytes(const HeadShape& shape, DType dtype, index_t k_rows) {
  check_shape(shape);
  check_not_negative("k_rows", k_rows);
  return BlockLayout(shape, dtype, k_rows).bytes;
}

std::size_t cpu_workspace_bytes(const KernelConfig& config) {
  check_config(config);
  const auto state = static_cast<index_t>(StateLayout(config.shape, config.q_rows).bytes);
  const index_t scratch = checked_product(
      {index_t{config.threads}, scratch_floats(config.shape, config.dtype), index_t{sizeof(float)}});
  return static_cast<std::size_t>(checked_sum(state, scratch));
}

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const Target* target : targets()) names.emplace_back(target->name);
  return names;
}

}  // namespace ringattn
