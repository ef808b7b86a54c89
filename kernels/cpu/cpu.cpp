#include "kernels/cpu/cpu.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kernels/check.h"
#include "kernels/cpu/backward_pack.h"
#include "kernels/cpu/backward_run.h"
#include "kernels/cpu/few.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/queries.h"
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

// dK is summed with the queries that the state holds, which are turned and multiplied by Scaling::factor.
double rest_of_scale(double softmax_scale, const Scaling& scaling) {
  return softmax_scale == 0 ? 0 : softmax_scale / scaling.factor;
}

// Cosines and sines of all rows, if they turn.
index_t angle_bytes(const KernelConfig& config) {
  return checked_round_up(checked_product({config.q_rows, config.shape.head_dim, index_t{sizeof(float)}}),
                          64);
}

std::size_t arena_bytes(const KernelConfig& config, Pass pass) {
  const auto bytes = [&](std::size_t state, index_t scratch) {
    return static_cast<std::size_t>(
        checked_sum(static_cast<index_t>(state),
                    checked_product({index_t{config.threads}, scratch, index_t{sizeof(float)}})));
  };
  const auto few = static_cast<std::size_t>(checked_product(
      {few_scratch_floats(config.shape, config.q_rows, config.threads), index_t{sizeof(float)}}));
  const auto carried = static_cast<std::size_t>(
      checked_sum(static_cast<index_t>(StateLayout(config.shape, config.q_rows).bytes), angle_bytes(config)));
  const std::size_t forward = bytes(carried, scratch_floats(config.shape, config.dtype)) + few;
  if (pass == Pass::forward) return forward;
  return std::max(forward, bytes(RowsLayout(config.shape, config.q_rows).bytes,
                                 ScratchLayout(config.shape, config.dtype).floats));
}

class CpuKernel final : public Kernel {
 public:
  explicit CpuKernel(const KernelConfig& config)
      : config_(config),
        target_(target_named(config.isa)),
        scaling_(scaling_of(config.softmax_scale)),
        queries_(target_),
        layout_(config.shape, config.q_rows),
        rows_layout_(config.shape, config.q_rows),
        scratch_layout_(config.shape, config.dtype),
        arena_(allocate_zeroed(arena_bytes(config, Pass::forward), config.threads)) {}

  std::string name() const override { return std::string("cpu/") + target_.name; }

  std::size_t block_bytes(index_t k_rows) const override {
    return cpu_block_bytes(config_.shape, config_.dtype, k_rows);
  }

  std::size_t gradient_bytes(index_t k_rows) const override {
    return cpu_gradient_bytes(config_.shape, k_rows);
  }

  std::size_t workspace_bytes() const override { return arena_.size; }

  // Both passes work in one arena: their rows are never needed at the same time.
  void reserve(Pass pass) override {
    if (pass == Pass::forward || room_ == Pass::backward) return;
    const std::size_t bytes = arena_bytes(config_, pass);
    arena_ = {};
    try {
      arena_ = allocate_zeroed(bytes, config_.threads);
    } catch (const OutOfMemory&) {
      arena_ = allocate_zeroed(arena_bytes(config_, Pass::forward), config_.threads);
      throw;
    }
    room_ = pass;
  }

  Buffer allocate(std::size_t bytes) const override { return allocate_zeroed(bytes, config_.threads); }

  void load_queries(const ConstTensorView& q, const Rotation& rotation) override {
    const HeadShape& shape = config_.shape;
    check_tensor("q", q, config_.dtype, {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim});
    check_rotation(rotation, shape.head_dim);
    if (std::exchange(scratch_used_, false)) clear_forward_scratch();
    auto* const angles = reinterpret_cast<float*>(arena_.data.get() + layout_.bytes);
    queries_.take(q, rotation, scaling_.factor,
                  {angles, static_cast<std::size_t>(angle_bytes(config_)) / sizeof(float)}, config_.threads);
    for (index_t group = 0; group < shape.batch * shape.num_heads * layout_.groups; ++group)
      group_view(layout_, arena_.data.get(), 0, 0, group).rows->seen = Seen::nothing;
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
    attend_block(tiles, block, k_rows, nullptr, poll);
  }

  void attend_last(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                   const TensorView& out, const LseView& lse, const Poll& poll) override {
    check_outputs(out, lse);
    const Outputs outputs{.out = out, .lse = lse, .stream = streams(out)};
    attend_block(tiles, block, k_rows, &outputs, poll);
    finish(out, lse);
  }

  void finish(const TensorView& out, const LseView& lse) override {
    check_outputs(out, lse);
    unpack_output(target_, layout_, arena_.data.get(), scaling_.slope, out, lse, config_.threads);
  }

  void load_rows(const ConstTensorView& q, const Rotation& rotation, const ConstTensorView& dout,
                 const ConstTensorView& out, const ConstLseView& lse, const Poll& poll) override {
    const HeadShape& shape = config_.shape;
    check_reserved(room_ == Pass::backward, "load_rows");
    check_tensor("q", q, config_.dtype, {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim});
    check_tensor("dout", dout, config_.dtype,
                 {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim_v});
    check_tensor("out", out, config_.dtype, {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim_v});
    check_lse(lse, {shape.batch, shape.num_heads, config_.q_rows});
    check_rotation(rotation, shape.head_dim);
    scratch_used_ = true;
    pack_rows(target_, {.q = q, .dout = dout, .out = out, .lse = lse}, rotation, scaling_.factor,
              rows_layout_, arena_.data.get(), config_.threads, poll);
    next_span_ = 0;
  }

  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override {
    check_reserved(room_ == Pass::backward, "attend_backward");
    check_block(block, block_bytes(k_rows), alignof(float));
    check_gradients(gradients.bytes, gradient_bytes(k_rows), alignof(float));
    const Schedule schedule(tiles, config_.q_rows, k_rows);
    const BlockLayout block_layout(config_.shape, config_.dtype, k_rows);
    const GradientLayout gradient_layout(config_.shape, k_rows);
    attend_block_backward({.target = target_,
                           .shape = config_.shape,
                           .dtype = config_.dtype,
                           .threads = config_.threads,
                           .slope = scaling_.slope,
                           .q_rows = config_.q_rows,
                           .rows_layout = rows_layout_,
                           .rows = arena_.data.get(),
                           .block_layout = block_layout,
                           .block = block.data(),
                           .k_rows = k_rows,
                           .gradient_layout = gradient_layout,
                           .gradients = gradients,
                           .scratch_layout = scratch_layout_,
                           .scratch = reinterpret_cast<float*>(arena_.data.get() + rows_layout_.bytes),
                           .schedule = schedule,
                           .first_span = next_span_},
                          poll);
    next_span_ += backward_spans(k_rows);
  }

  void finish_rows(const TensorView& dq, const Rotation& rotation) override {
    const HeadShape& shape = config_.shape;
    check_reserved(room_ == Pass::backward, "finish_rows");
    check_tensor("dq", as_const(dq), dq.dtype,
                 {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim});
    check_rotation(rotation, shape.head_dim);
    unpack_rows(target_, rows_layout_, arena_.data.get(), dq, config_.softmax_scale, rotation,
                config_.threads);
  }

  void finish_gradients(std::span<const std::byte> gradients, const TensorView& dk, const TensorView& dv,
                        const Rotation& rotation) const override {
    const HeadShape& shape = config_.shape;
    const index_t rows = dk.rows();
    check_tensor("dk", as_const(dk), dk.dtype, {shape.batch, rows, shape.num_heads_kv, shape.head_dim});
    check_tensor("dv", as_const(dv), dv.dtype, {shape.batch, rows, shape.num_heads_kv, shape.head_dim_v});
    check_rotation(rotation, shape.head_dim);
    check_gradients(gradients, gradient_bytes(rows), alignof(float));
    unpack_gradients(target_, GradientLayout(shape, rows), gradients.data(), dk, dv,
                     rest_of_scale(config_.softmax_scale, scaling_), rotation, config_.threads);
  }

 private:
  void check_outputs(const TensorView& out, const LseView& lse) const {
    const HeadShape& shape = config_.shape;
    check_tensor("out", as_const(out), out.dtype,
                 {shape.batch, config_.q_rows, shape.num_heads, shape.head_dim_v});
    check_lse(lse, {shape.batch, shape.num_heads, config_.q_rows});
  }

  // `outputs`: null if more may follow.
  void attend_block(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                    const Outputs* outputs, const Poll& poll) {
    check_block(block, block_bytes(k_rows), alignof(float));
    const Schedule schedule(tiles, config_.q_rows, k_rows);
    const BlockLayout block_layout(config_.shape, config_.dtype, k_rows);
    const AttendRun run{.target = target_,
                        .shape = config_.shape,
                        .dtype = config_.dtype,
                        .threads = config_.threads,
                        .slope = scaling_.slope,
                        .queries = queries_,
                        .state_layout = layout_,
                        .state = arena_.data.get(),
                        .block_layout = block_layout,
                        .block = block.data(),
                        .k_rows = k_rows,
                        .scratch = forward_scratch(),
                        .schedule = schedule,
                        .outputs = outputs};
    scratch_used_ = true;  // should this throw
    if (const auto rows = few_rows(schedule, config_.q_rows, few_limit(target_, config_.dtype))) {
      float* scratch = run.scratch + config_.threads * scratch_floats(config_.shape, config_.dtype);
      attend_few(run, *rows, config_.q_rows, scratch, poll);
    } else {
      cpu::attend_block(run, poll);
    }
    scratch_used_ = false;
  }

  float* forward_scratch() {
    return reinterpret_cast<float*>(arena_.data.get() + layout_.bytes + angle_bytes(config_));
  }

  // Forward's scratch is 0 between its tasks (run.cpp), but not after one that was broken off, and backward
  // leaves its own numbers there: a forward after it would add them to its sums.
  void clear_forward_scratch() {
    std::fill_n(forward_scratch(), config_.threads * scratch_floats(config_.shape, config_.dtype), 0.0f);
  }

  KernelConfig config_;
  const Target& target_;
  Scaling scaling_;
  Queries queries_;
  StateLayout layout_;
  RowsLayout rows_layout_;
  ScratchLayout scratch_layout_;
  Buffer arena_;  // groups of the pass at hand, then its scratch
  Pass room_ = Pass::forward;
  bool scratch_used_ = false;  // and left as it is
  index_t next_span_ = 0;
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

std::size_t cpu_gradient_bytes(const HeadShape& shape, index_t k_rows) {
  check_shape(shape);
  check_not_negative("k_rows", k_rows);
  return GradientLayout(shape, k_rows).bytes;
}

std::size_t cpu_workspace_bytes(const KernelConfig& config, Pass pass) {
  check_config(config);
  return arena_bytes(config, pass);
}

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const Target* target : targets()) names.emplace_back(target->name);
  return names;
}

}  // namespace ringattn
