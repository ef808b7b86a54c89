#include "kernels/cuda/cuda.h"

#include <optional>

#include "kernels/check.h"
#include "kernels/cuda/chapter.h"
#include "kernels/cuda/device_error.h"
#include "kernels/cuda/gradients.h"
#include "kernels/cuda/launches.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/scaling.h"
#include "kernels/cuda/sent.h"
#include "kernels/cuda/split_attend.h"
#include "kernels/cuda/split_kernel.h"
#include "src/error.h"

namespace ringattn {
namespace {

using namespace cuda;

// Of a block or of gradients. Device allocations are aligned to 256 bytes.
constexpr std::size_t kBlockAlignment = 128;

Tensor tensor_of(const ConstTensorView& view) {
  return {.data = const_cast<void*>(view.data),
          .batch_stride = view.stride[0],
          .row_stride = view.stride[1],
          .head_stride = view.stride[2]};
}
Tensor tensor_of(const TensorView& view) { return tensor_of(as_const(view)); }

Rows rows_of(const std::byte* data, const ArrayLayout& layout) {
  return {.data = const_cast<std::byte*>(data), .rows = layout.rows, .stride = layout.stride};
}

class CudaKernel final : public Kernel {
 public:
  CudaKernel(const KernelConfig& config, cudaStream_t stream, const std::optional<SplitRule>& rule = {})
      : config_(config),
        shape_(config.shape),
        stream_(stream),
        chapter_(chapter_for(config)),
        rows_(chapter_.group_rows(config)),
        split_rule_(rule ? *rule : split_rule()),
        scaling_(scaling_of(config.softmax_scale, config.dtype)),
        layout_(config.shape, config.dtype, config.q_rows),
        workspace_(layout_.bytes(Pass::forward), stream),
        uploads_(stream) {}

  std::string name() const override { return std::string("cuda/") + chapter_.name; }

  std::size_t block_bytes(index_t k_rows) const override {
    return cuda_block_bytes(shape_, config_.dtype, k_rows);
  }
  std::size_t gradient_bytes(index_t k_rows) const override { return cuda_gradient_bytes(shape_, k_rows); }
  std::size_t workspace_bytes() const override { return workspace_.size(); }

  void reserve(Pass pass) override {
    if (pass == Pass::forward || room_ == Pass::backward) return;
    workspace_ = {};
    try {
      workspace_ = DeviceMemory(layout_.bytes(pass), stream_);
    } catch (const OutOfMemory&) {
      workspace_ = DeviceMemory(layout_.bytes(Pass::forward), stream_);
      throw;
    }
    room_ = pass;
  }

  Buffer allocate(std::size_t bytes) const override {
    DeviceMemory memory(bytes, stream_);
    if (bytes > 0) check_cuda(cudaMemsetAsync(memory.data(), 0, bytes, stream_), "cudaMemsetAsync");
    return std::move(memory).release();
  }

  void load_queries(const ConstTensorView& q, const Rotation& rotation) override {
    check_tensor("q", q, config_.dtype, {shape_.batch, config_.q_rows, shape_.num_heads, shape_.head_dim});
    check_rotation(rotation, shape_.head_dim);
    load(q, rotation, scaling_.query, rows_of(workspace_.data(), layout_.q));
    launch_reset({.o = state_o(),
                  .maximum = numbers(layout_.numbers_at[0]),
                  .sum = numbers(layout_.numbers_at[1]),
                  .all_heads = layout_.heads},
                 stream_);
  }

  void load_block(const ConstTensorView& k, const ConstTensorView& v, const Rotation& rotation,
                  std::span<std::byte> block) const override {
    check_tensor("k", k, config_.dtype, {shape_.batch, k.rows(), shape_.num_heads_kv, shape_.head_dim});
    check_tensor("v", v, config_.dtype, {shape_.batch, k.rows(), shape_.num_heads_kv, shape_.head_dim_v});
    check_rotation(rotation, shape_.head_dim);
    check_block(block, block_bytes(k.rows()), kBlockAlignment);
    const PairLayout layout = block_layout(shape_, config_.dtype, k.rows());
    load(k, rotation, 1, rows_of(block.data(), layout.k));
    load(v, {}, 1, rows_of(block.data() + layout.k.bytes, layout.v));
  }

  void attend(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
              const Poll& poll) override {
    add(tiles, block, k_rows, {});
    if (poll) poll();
  }

  void attend_last(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                   const TensorView& out, const LseView& lse, const Poll& poll) override {
    if (!chapter_.ends || out.dtype != config_.dtype)
      return Kernel::attend_last(tiles, block, k_rows, out, lse, poll);
    check_outputs(out, lse);
    if (const std::optional<Schedule> ended = add(tiles, block, k_rows, outputs(out, lse))) {
      const std::vector<index_t> rest = rows_beside(*ended, config_.q_rows, rows_.attend);
      const SentRows sent = send(uploads_, rest);
      FinishParams params = finish_params(out, lse);
      params.first_rows = sent.first_rows;
      params.groups = static_cast<index_t>(rest.size());
      params.group_rows = rows_.attend;
      launch_finish(out.dtype, params, stream_);
    } else {
      launch_finish(out.dtype, finish_params(out, lse), stream_);
    }
    if (poll) poll();
  }

  void finish(const TensorView& out, const LseView& lse) override {
    check_outputs(out, lse);
    launch_finish(out.dtype, finish_params(out, lse), stream_);
  }

  void load_rows(const ConstTensorView& q, const Rotation& rotation, const ConstTensorView& dout,
                 const ConstTensorView& out, const ConstLseView& lse, const Poll& poll) override {
    const std::array<index_t, 4> out_shape{shape_.batch, config_.q_rows, shape_.num_heads, shape_.head_dim_v};
    check_reserved(room_ == Pass::backward, "load_rows");
    check_tensor("q", q, config_.dtype, {shape_.batch, config_.q_rows, shape_.num_heads, shape_.head_dim});
    check_tensor("dout", dout, config_.dtype, out_shape);
    check_tensor("out", out, config_.dtype, out_shape);
    check_lse(lse, {shape_.batch, shape_.num_heads, config_.q_rows});
    check_rotation(rotation, shape_.head_dim);
    load(q, rotation, scaling_.query, rows_of(workspace_.data(), layout_.q));
    load(dout, {}, 1, rows_of(workspace_.data() + layout_.dout_at, layout_.dout));
    launch_row_numbers(config_.dtype,
                       {.dout = tensor_of(dout),
                        .out = tensor_of(out),
                        .lse = lse.data,
                        .lse_stride = {lse.stride[0], lse.stride[1], lse.stride[2]},
                        .to = row_numbers(),
                        .loaded_q = rows_of(workspace_.data(), layout_.q),
                        .loaded_dout = rows_of(workspace_.data() + layout_.dout_at, layout_.dout),
                        .log2e = scaling_.log2e,
                        .stride = layout_.numbers.rows,
                        .rows = config_.q_rows,
                        .heads = shape_.num_heads,
                        .all_heads = layout_.heads,
                        .dim_v = static_cast<int>(shape_.head_dim_v)},
                       stream_);
    if (layout_.dq.bytes > 0)
      check_cuda(cudaMemsetAsync(workspace_.data() + layout_.dq_at, 0,
                                 static_cast<std::size_t>(layout_.dq.bytes), stream_),
                 "cudaMemsetAsync");
    if (poll) poll();
  }

  void clear_gradients(std::span<std::byte> gradients) const override {
    if (gradients.empty()) return;
    check_cuda(cudaMemsetAsync(gradients.data(), 0, gradients.size(), stream_), "cudaMemsetAsync");
  }

  void attend_backward(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                       const GradientBlock& gradients, const Poll& poll) override {
    check_reserved(room_ == Pass::backward, "attend_backward");
    check_block(block, block_bytes(k_rows), kBlockAlignment);
    check_gradients(gradients.bytes, gradient_bytes(k_rows), kBlockAlignment);
    if (gradients.fresh) clear_gradients(gradients.bytes);
    add_gradients({.chapter = chapter_,
                   .group_rows = rows_,
                   .dtype = config_.dtype,
                   .params = backward_params(block, k_rows, gradients.bytes),
                   .tiles = tiles,
                   .gradients = gradients,
                   .poll = poll,
                   .uploads = uploads_,
                   .stream = stream_});
  }

  void finish_rows(const TensorView& dq, const Rotation& rotation) override {
    check_reserved(room_ == Pass::backward, "finish_rows");
    check_tensor("dq", as_const(dq), dq.dtype,
                 {shape_.batch, config_.q_rows, shape_.num_heads, shape_.head_dim});
    check_rotation(rotation, shape_.head_dim);
    store(rows_of(workspace_.data() + layout_.dq_at, layout_.dq), config_.softmax_scale, dq, rotation);
  }

  void finish_gradients(std::span<const std::byte> gradients, const TensorView& dk, const TensorView& dv,
                        const Rotation& rotation) const override {
    const index_t rows = dk.rows();
    check_tensor("dk", as_const(dk), dk.dtype, {shape_.batch, rows, shape_.num_heads_kv, shape_.head_dim});
    check_tensor("dv", as_const(dv), dv.dtype, {shape_.batch, rows, shape_.num_heads_kv, shape_.head_dim_v});
    check_rotation(rotation, shape_.head_dim);
    check_gradients(gradients, gradient_bytes(rows), kBlockAlignment);
    const PairLayout layout = gradient_layout(shape_, rows);
    store(rows_of(gradients.data(), layout.k), scaling_.rest(config_.softmax_scale), dk, rotation);
    store(rows_of(gradients.data() + layout.k.bytes, layout.v), 1, dv, {});
  }

 private:
  void load(const ConstTensorView& from, const Rotation& rotation, double factor, const Rows& to) const {
    const SentAngles angles = send(uploads_, rotation, from.rows(), false, config_.threads);
    launch_load(from.dtype,
                {.from = tensor_of(from),
                 .to = to,
                 .rows = from.rows(),
                 .heads = from.heads(),
                 .all_heads = from.batch() * from.heads(),
                 .dim = static_cast<int>(from.dim()),
                 .factor = factor,
                 .turn = angles.turn},
                stream_);
  }

  void store(const Rows& from, double factor, const TensorView& to, const Rotation& rotation) const {
    const SentAngles angles = send(uploads_, rotation, to.rows(), true, config_.threads);
    launch_store(to.dtype,
                 {.from = from,
                  .to = tensor_of(to),
                  .rows = to.rows(),
                  .heads = to.heads(),
                  .all_heads = to.batch() * to.heads(),
                  .dim = static_cast<int>(to.dim()),
                  .factor = factor,
                  .turn = angles.turn},
                 stream_);
  }

  // Adds a block, and where rows are not split, they end as `end` says. The schedule of those rows.
  std::optional<Schedule> add(std::span<const Tile> tiles, std::span<const std::byte> block, index_t k_rows,
                              const Outputs& end) {
    check_block(block, block_bytes(k_rows), kBlockAlignment);
    AttendParams params = attend_params(block, k_rows);
    Schedule schedule = query_schedule(tiles, config_.q_rows, k_rows, rows_.attend);
    if (const std::optional<Schedule> parts =
            split(schedule, all_packs(params), split_state_rows(), split_rule_)) {
      attend_parts(chapter_, config_.dtype, *parts, split_state_rows(), params, uploads_, stream_);
      return {};
    }
    const SentWalk sent = send(uploads_, schedule);
    params.walk = sent.walk;
    params.end = end;
    if (sent.walk.count > 0) chapter_.attend(config_.dtype, params, stream_);
    return schedule;
  }

  void check_outputs(const TensorView& out, const LseView& lse) const {
    check_tensor("out", as_const(out), out.dtype,
                 {shape_.batch, config_.q_rows, shape_.num_heads, shape_.head_dim_v});
    check_lse(lse, {shape_.batch, shape_.num_heads, config_.q_rows});
  }
  Outputs outputs(const TensorView& out, const LseView& lse) const {
    return {.out = tensor_of(out),
            .lse = lse.data,
            .lse_stride = {lse.stride[0], lse.stride[1], lse.stride[2]},
            .heads = shape_.num_heads};
  }
  // Of all rows.
  FinishParams finish_params(const TensorView& out, const LseView& lse) const {
    return {.o = state_o(),
            .maximum = numbers(layout_.numbers_at[0]),
            .sum = numbers(layout_.numbers_at[1]),
            .to = outputs(out, lse),
            .first_rows = nullptr,
            .groups = config_.q_rows,
            .group_rows = 1,
            .rows = config_.q_rows,
            .all_heads = layout_.heads,
            .dim_v = static_cast<int>(shape_.head_dim_v),
            .slope = scaling_.scores.slope};
  }

  // All but the walk and the end of its rows.
  AttendParams attend_params(std::span<const std::byte> block, index_t k_rows) const {
    const PairLayout layout = block_layout(shape_, config_.dtype, k_rows);
    return {.walk = {},
            .q = rows_of(workspace_.data(), layout_.q),
            .k = rows_of(block.data(), layout.k),
            .v = rows_of(block.data() + layout.k.bytes, layout.v),
            .o = state_o(),
            .maximum = numbers(layout_.numbers_at[0]),
            .sum = numbers(layout_.numbers_at[1]),
            .q_rows = config_.q_rows,
            .k_rows = k_rows,
            .all_heads = layout_.heads,
            .heads_a_kv = shape_.group(),
            .head_dim = static_cast<int>(shape_.head_dim),
            .dim_v = static_cast<int>(shape_.head_dim_v),
            .group_rows = rows_.attend,
            .group_heads = rows_.heads,
            .packs_a_kv = (shape_.group() + rows_.heads - 1) / rows_.heads,
            .scores = scaling_.scores,
            .end = {}};
  }

  // Rows of a group's state, where groups are split.
  index_t split_state_rows() const { return std::min<index_t>(rows_.attend, config_.q_rows); }

  BackwardParams backward_params(std::span<const std::byte> block, index_t k_rows,
                                 std::span<std::byte> gradients) const {
    const PairLayout layout = block_layout(shape_, config_.dtype, k_rows);
    const PairLayout sums = gradient_layout(shape_, k_rows);
    return {.walk = {},
            .q = rows_of(workspace_.data(), layout_.q),
            .dout = rows_of(workspace_.data() + layout_.dout_at, layout_.dout),
            .k = rows_of(block.data(), layout.k),
            .v = rows_of(block.data() + layout.k.bytes, layout.v),
            .dq = rows_of(workspace_.data() + layout_.dq_at, layout_.dq),
            .dk = rows_of(gradients.data(), sums.k),
            .dv = rows_of(gradients.data() + sums.k.bytes, sums.v),
            .numbers = row_numbers(),
            .q_rows = config_.q_rows,
            .k_rows = k_rows,
            .all_heads = layout_.heads,
            .all_heads_kv = shape_.batch * shape_.num_heads_kv,
            .heads_a_kv = shape_.group(),
            .head_dim = static_cast<int>(shape_.head_dim),
            .dim_v = static_cast<int>(shape_.head_dim_v),
            .scores = scaling_.scores,
            .turns = {}};
  }

  float* numbers(index_t at) const { return reinterpret_cast<float*>(workspace_.data() + at); }
  Rows state_o() const { return rows_of(workspace_.data() + layout_.o_at, layout_.o); }
  RowNumbers row_numbers() const {
    return {.high = numbers(layout_.row_numbers_at[0]),
            .low = numbers(layout_.row_numbers_at[1]),
            .delta = numbers(layout_.row_numbers_at[2])};
  }

  KernelConfig config_;
  HeadShape shape_;
  cudaStream_t stream_;
  const Chapter& chapter_;
  GroupRows rows_;
  SplitRule split_rule_;
  Scaling scaling_;
  WorkspaceLayout layout_;
  DeviceMemory workspace_;
  mutable Uploads uploads_;
  Pass room_ = Pass::forward;
};

}  // namespace

bool cuda_built() { return true; }

std::unique_ptr<Kernel> cuda::make_split_kernel(const KernelConfig& config, cudaStream_t stream,
                                                const SplitRule& rule) {
  check_config(config);
  return std::make_unique<CudaKernel>(config, stream, rule);
}

std::unique_ptr<Kernel> make_cuda_kernel(const KernelConfig& config, void* stream) {
  check_config(config);  // first of all, whatever the device
  return std::make_unique<CudaKernel>(config, static_cast<cudaStream_t>(stream));
}

}  // namespace ringattn
