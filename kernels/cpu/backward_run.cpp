#include "kernels/cpu/backward_run.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/backward_order.h"
#include "kernels/cpu/parallel.h"

namespace ringattn::cpu {
namespace {

// Sums are formed in three levels, as in forward (see run.cpp). dQ: a task's keys in registers, those of a
// span of 2,048 keys in the group's `span`, spans in its `total`. dK and dV: 48 queries in registers, those
// of 43 groups, about as many, in scratch, all in the gradient block, which carries the sum on to the next
// rank.
constexpr index_t kGroupSpan = 43;

// The keys of a task that are seen at all, and the groups that see any of them.
struct KeyBlock {
  Range rows, groups;
};

// In ascending order. The cut into key blocks depends on the shape alone, since it shows in the sums.
std::vector<KeyBlock> key_blocks(const BackwardRun& run) {
  const index_t keys = run.scratch_layout.keys, groups = run.schedule.groups();
  std::vector<KeyBlock> blocks(static_cast<std::size_t>((run.k_rows + keys - 1) / keys),
                               KeyBlock{{run.k_rows, 0}, {groups, 0}});
  for (index_t group = 0; group < groups; ++group) {
    for (const Piece& piece : run.schedule.pieces(group)) {
      for (index_t b = piece.k.begin / keys; b * keys < piece.k.end; ++b) {
        KeyBlock& block = blocks[static_cast<std::size_t>(b)];
        block.rows = {std::min(block.rows.begin, std::max(piece.k.begin, b * keys)),
                      std::max(block.rows.end, std::min(piece.k.end, (b + 1) * keys))};
        block.groups = {std::min(block.groups.begin, group), std::max(block.groups.end, group + 1)};
      }
    }
  }
  std::erase_if(blocks, [](const KeyBlock& block) { return block.rows.empty(); });
  return blocks;
}

class Task {
 public:
  Task(const BackwardRun& run, BackwardOrder& order, const KeyBlock& block, index_t index, index_t batch,
       index_t head_kv, int thread)
      : run_(run),
        order_(order),
        block_(block),
        index_(index),
        batch_(batch),
        head_kv_(head_kv),
        thread_(thread),
        first_key_(block.rows.begin / run.scratch_layout.keys * run.scratch_layout.keys),
        padded_keys_(std::min(run.scratch_layout.keys, run.block_layout.padded_rows - first_key_)),
        scratch_(run.scratch + thread * run.scratch_layout.floats) {
    prepare_keys();
  }

  // Groups from the last to the first, all heads of a group together. Task after task then follows its
  // predecessor through the groups at a distance of one step, under a causal mask or a window, too: in
  // ascending order it would begin where its predecessor has yet to come.
  void walk() {
    const index_t heads = run_.shape.group(), groups = run_.schedule.groups();
    for (index_t group = block_.groups.end - 1; group >= block_.groups.begin; --group) {
      const std::span<const Piece> pieces = pieces_of(group);
      if (pieces.empty()) continue;
      for (index_t h = 0; h < heads; ++h)
        if (!visit(group, head_kv_ * heads + h, (groups - 1 - group) * heads + h, pieces)) return;
    }
    if (unflushed_ > 0 && !flush()) return;
    order_.finish(index_);
  }

 private:
  float* scratch(index_t offset) const { return scratch_ + offset; }

  // Sums of 0, and pairs of bf16 if they are multiplied; what is widened waits for a group that needs it.
  void prepare_keys() {
    const ScratchLayout& at = run_.scratch_layout;
    // Forward has used this memory, too: what lies between rows must be finite.
    for (const auto& [from, floats] :
         {std::pair{at.dk, padded_keys_ * at.k_stride}, std::pair{at.dv, padded_keys_ * at.v_stride},
          std::pair{at.q_rows, kGroup * at.k_stride}, std::pair{at.dout_rows, kGroup * at.v_stride}})
      std::fill_n(scratch(from), floats, 0.0f);
    if (run_.target.pairs && run_.dtype == DType::bf16) {
      pair_keys();
    } else {
      widen_keys();
    }
  }

  // K the other way and V, of which only the pairs along keys are in the block.
  void pair_keys() {
    const ScratchLayout& at = run_.scratch_layout;
    const BlockLayout& layout = run_.block_layout;
    const std::byte* k = run_.block + layout.k_panel(batch_, head_kv_, first_key_);
    k_pairs_ = reinterpret_cast<const float*>(k);
    k_size_ = run_.target.magnitude_bf16(k, padded_keys_ * layout.k_dim);
    k_finite_ = k_size_.finite;
    v_size_ = 0;
    for (index_t row = 0; row < padded_keys_; row += kPanel) {
      const index_t key = first_key_ + row, first = key / kKeyBlock * kKeyBlock, rows = layout.v_rows(first);
      const auto* v = reinterpret_cast<const float*>(run_.block + layout.v_panels(batch_, head_kv_, first));
      if (key == first)
        v_size_ = std::max(v_size_, run_.target.magnitude_bf16(v, rows * layout.dim_v).largest);
      run_.target.pairs->regroup({.from = k_pairs_ + row * layout.k_dim / 2,
                                  .from_stride = kPanel,
                                  .from_step = kPanel / 2 * kPanel,
                                  .to = scratch(at.k_column_pairs) + row / 2 * kPanel,
                                  .to_stride = kPanel,
                                  .to_step = padded_keys_ / 2 * kPanel},
                                 layout.head_dim);
      run_.target.pairs->regroup({.from = v + (key - first) / 2 * kPanel,
                                  .from_stride = kPanel,
                                  .from_step = rows / 2 * kPanel,
                                  .to = scratch(at.v_pairs) + row * layout.dim_v / 2,
                                  .to_stride = kPanel,
                                  .to_step = kPanel / 2 * kPanel},
                                 layout.dim_v);
    }
  }

  // Panels of K and V both ways, in fp32. What a block holds besides is transposed; 8 x 8 numbers stay
  // together.
  void widen_keys() {
    const ScratchLayout& scratch_at = run_.scratch_layout;
    const BlockLayout& layout = run_.block_layout;
    const Target& target = run_.target;
    const index_t dim = layout.head_dim, dim_v = layout.dim_v, whole = dim / kPanel * kPanel;
    const std::byte* from = run_.block + layout.k_panel(batch_, head_kv_, first_key_);
    k_ = reinterpret_cast<const float*>(from);
    if (run_.dtype != DType::f32) {
      for (index_t row = 0; row < padded_keys_; row += kPanel)
        target.widen_pairs(from + row * layout.k_dim * layout.element, run_.dtype, dim,
                           scratch(scratch_at.k_panels) + row * dim);
      k_ = scratch(scratch_at.k_panels);
    }
    k_finite_ = target.all_finite(k_, padded_keys_ * dim);
    float* const k_columns = scratch(scratch_at.k_columns);
    std::fill_n(k_columns + whole * padded_keys_, (round_up(dim, kPanel) - whole) * padded_keys_, 0.0f);
    for (index_t row = 0; row < padded_keys_; row += kPanel) {
      const float* panel = k_ + row * dim;
      target.transpose_blocks(panel, 64, whole / kPanel, k_columns + row * kPanel, padded_keys_ * kPanel);
      for (index_t c = whole; c < dim; ++c)
        for (index_t r = 0; r < kPanel; ++r)
          k_columns[whole * padded_keys_ + (row + r) * kPanel + c - whole] = panel[c * kPanel + r];
      transpose_values(row, scratch(scratch_at.v_panels) + row * dim_v);
    }
  }

  // V of 8 keys as a panel [dim_v][8].
  void transpose_values(index_t row, float* to) {
    const BlockLayout& layout = run_.block_layout;
    const index_t at = first_key_ + row, first = at / kKeyBlock * kKeyBlock, rows = layout.v_rows(first);
    const std::byte* from =
        run_.block + layout.v_panels(batch_, head_kv_, first) + (at - first) * kPanel * layout.element;
    if (run_.dtype == DType::f32) {
      run_.target.transpose_blocks(reinterpret_cast<const float*>(from), rows * kPanel, layout.dim_v / kPanel,
                                   to, 64);
      return;
    }
    alignas(64) float wide[kPanel * kPanel];
    for (index_t c = 0; c < layout.dim_v; c += kPanel) {
      run_.target.widen_pairs(from + c * rows * layout.element, run_.dtype, kPanel, wide);
      run_.target.transpose_blocks(wide, 64, 1, to + c * kPanel, 64);
    }
  }

  // Those that may show something of this task's keys, sorted by the first key; empty if none does.
  std::span<const Piece> pieces_of(index_t group) const {
    std::span<const Piece> pieces = run_.schedule.pieces(group);
    while (!pieces.empty() && !sees(pieces.front())) pieces = pieces.subspan(1);
    while (!pieces.empty() && !sees(pieces.back())) pieces = pieces.first(pieces.size() - 1);
    return pieces;
  }
  bool sees(const Piece& piece) const {
    return piece.k.begin < first_key_ + padded_keys_ && piece.k.end > first_key_;
  }

  bool visit(index_t group, index_t head, index_t position, std::span<const Piece> pieces) {
    if (order_.stopped()) return false;
    order_.pass(index_, position);
    const RowsView view = rows_view(run_.rows_layout, run_.rows, batch_, head, group);
    const bool pairs = view.rows->pairs && DotRange::gradients(view.rows->q_largest, view.rows->dout_largest,
                                                               k_size_.largest, v_size_);
    GradientStep step = pairs ? paired_step(view) : wide_step(view);
    const PairTarget* dot = run_.target.pairs;
    const auto probabilities = pairs ? dot->probabilities : run_.target.probabilities;
    const auto key_gradients = pairs ? dot->key_gradients : run_.target.key_gradients;
    const auto query_gradients = pairs ? dot->query_gradients : run_.target.query_gradients;
    prefetch_after(group, head, step);
    bool turn = false;  // ours to add to dq
    for (const Piece& piece : pieces) {
      if (!sees(piece)) continue;
      show(piece, group, step);
      probabilities(step);
      step.turn_rows = false;
      key_gradients(step);
      if (!turn) {
        if (!order_.wait_for_earlier(index_, position, thread_)) return false;
        start_span(view);
        turn = true;
      }
      query_gradients(step);
    }
    order_.pass(index_, position + 1);
    order_.breathe(thread_);
    return ++unflushed_ < kGroupSpan || flush();
  }

  // The step of a group in fp32 but for what a piece shows, which also makes the group's rows.
  GradientStep wide_step(const RowsView& view) {
    const ScratchLayout& at = run_.scratch_layout;
    const HeadShape& shape = run_.shape;
    if (!k_) widen_keys();
    GradientStep step = common_step(view);
    step.k = k_;
    step.v = scratch(at.v_panels);
    step.k_columns = scratch(at.k_columns);
    step.ds_columns = step.ds;
    if (view.rows->pairs) {
      run_.target.pairs->split_rows(view.q, shape.head_dim, scratch(at.q_wide));
      run_.target.pairs->split_rows(view.dout, shape.head_dim_v, scratch(at.dout_wide));
      step.q = scratch(at.q_wide);
      step.dout = scratch(at.dout_wide);
    }
    step.turn_rows = true;
    return step;
  }

  // Likewise in pairs; rows are pairs of neighbouring queries.
  GradientStep paired_step(const RowsView& view) {
    const ScratchLayout& at = run_.scratch_layout;
    const auto pair_queries = [&](const float* from, index_t n, float* rows, index_t stride) {
      for (index_t lane = 0; lane < kGroup; lane += kPanel)
        run_.target.pairs->regroup({.from = from + lane,
                                    .from_stride = kGroup,
                                    .from_step = kPanel / 2 * kGroup,
                                    .to = rows + lane / 2 * stride,
                                    .to_stride = stride,
                                    .to_step = kPanel},
                                   n);
    };
    pair_queries(view.q, run_.shape.head_dim, scratch(at.q_rows), at.k_stride);
    pair_queries(view.dout, run_.shape.head_dim_v, scratch(at.dout_rows), at.v_stride);
    GradientStep step = common_step(view);
    step.k = k_pairs_;
    step.v = scratch(at.v_pairs);
    step.k_columns = scratch(at.k_column_pairs);
    step.ds_columns = step.ds + at.keys * kGroup / 2;
    return step;
  }

  GradientStep common_step(const RowsView& view) const {
    const ScratchLayout& at = run_.scratch_layout;
    const HeadShape& shape = run_.shape;
    return {.q = view.q,
            .dout = view.dout,
            .q_rows = scratch(at.q_rows),
            .dout_rows = scratch(at.dout_rows),
            .rows = view.rows,
            .p = scratch(0),
            .ds = scratch(at.keys * kGroup),
            .dk = scratch(at.dk),
            .dv = scratch(at.dv),
            .dq = view.span,
            .head_dim = static_cast<int>(shape.head_dim),
            .dim_v = static_cast<int>(shape.head_dim_v),
            .k_stride = static_cast<int>(at.k_stride),
            .v_stride = static_cast<int>(at.v_stride),
            .keys = static_cast<int>(padded_keys_),
            .slope = run_.slope,
            .k_finite = k_finite_};
  }

  void prefetch_after(index_t group, index_t head, GradientStep& step) const {
    const bool same_group = head + 1 < (head_kv_ + 1) * run_.shape.group();
    if (!same_group && group == block_.groups.begin) return;
    const index_t next_head = same_group ? head + 1 : head_kv_ * run_.shape.group();
    step.next = run_.rows + run_.rows_layout.offset(batch_, next_head, same_group ? group : group - 1);
    step.next_bytes = static_cast<int>(run_.rows_layout.step_bytes());
  }

  void show(const Piece& piece, index_t group, GradientStep& step) const {
    // All distances that matter are below 304; a band's ends may not even fit 32 bits.
    const auto near = [&](index_t x) {
      return static_cast<int>(std::clamp<index_t>(x - first_key_, -1024, 1024));
    };
    step.key_begin = static_cast<int>(std::max<index_t>(piece.k.begin - first_key_, 0));
    step.key_end = static_cast<int>(std::min(piece.k.end - first_key_, padded_keys_));
    step.lane_begin = piece.lane_begin;
    // A forward row's padding may see what it likes; here it would be a row of the sums.
    step.lane_end = static_cast<int>(std::min<index_t>(piece.lane_end, run_.q_rows - group * kGroup));
    step.lo = near(piece.lo);
    step.hi = near(piece.hi);
  }

  void start_span(const RowsView& view) const {
    const index_t id = run_.first_span + first_key_ / kKeySpan;
    if (view.rows->span_id == id) return;
    const index_t floats = run_.rows_layout.dq_floats;
    if (std::exchange(view.rows->span_id, id) < 0) {
      std::fill_n(view.span, floats, 0.0f);
    } else if (!std::exchange(view.rows->has_total, true)) {
      std::copy_n(view.span, floats, view.total);
      std::fill_n(view.span, floats, 0.0f);
    } else {
      run_.target.move_sum(view.span, view.total, floats);
    }
  }

  // Adds dK and dV to the gradient block, or makes them, if it is fresh.
  bool flush() {
    const GradientLayout& layout = run_.gradient_layout;
    const ScratchLayout& at = run_.scratch_layout;
    if (!order_.wait_for_bytes(layout.row(batch_, head_kv_, block_.rows.end), thread_)) return false;
    const bool first = run_.gradients.fresh && !std::exchange(flushed_, true);
    const auto move = [&](float* from, float* to, index_t floats) {
      if (!first) return run_.target.move_sum(from, to, floats);
      std::copy_n(from, floats, to);
      std::fill_n(from, floats, 0.0f);
    };
    for (index_t row = block_.rows.begin; row < block_.rows.end; ++row) {
      auto* to = reinterpret_cast<float*>(run_.gradients.bytes.data() + layout.row(batch_, head_kv_, row));
      const index_t key = row - first_key_;
      move(scratch(at.dk) + key * at.k_stride, to, layout.k_floats);
      move(scratch(at.dv) + key * at.v_stride, to + layout.k_floats, layout.v_floats);
    }
    unflushed_ = 0;
    return true;
  }

  const BackwardRun& run_;
  BackwardOrder& order_;
  const KeyBlock& block_;
  index_t index_, batch_, head_kv_;
  int thread_;
  index_t first_key_, padded_keys_;
  float* scratch_;
  const float* k_ = nullptr;        // fp32, null until a group needs it
  const float* k_pairs_ = nullptr;  // likewise pairs of bf16
  Magnitude k_size_{.finite = true, .largest = 0};
  float v_size_ = 0;
  bool k_finite_ = true;
  index_t unflushed_ = 0;
  bool flushed_ = false;
};

// A fresh gradient block where no task will write.
void zero_unseen(const BackwardRun& run, const std::vector<KeyBlock>& blocks) {
  const GradientLayout& layout = run.gradient_layout;
  const HeadShape& shape = run.shape;
  parallel_tasks(run.threads, shape.batch * shape.num_heads_kv, [&](index_t task, int) {
    const auto zero = [&](index_t begin, index_t end) {
      std::byte* head =
          run.gradients.bytes.data() + layout.row(task / shape.num_heads_kv, task % shape.num_heads_kv, 0);
      std::fill(head + begin * layout.row_bytes, head + end * layout.row_bytes, std::byte{0});
    };
    index_t row = 0;
    for (const KeyBlock& block : blocks) {
      zero(row, block.rows.begin);
      row = block.rows.end;
    }
    zero(row, layout.head_bytes / layout.row_bytes);
  });
}

}  // namespace

index_t backward_spans(index_t k_rows) { return k_rows / kKeySpan + 1; }

void attend_block_backward(const BackwardRun& run, const Poll& poll) {
  const std::vector<KeyBlock> blocks = key_blocks(run);
  const auto a_head = static_cast<index_t>(blocks.size());
  const index_t heads_kv = run.shape.num_heads_kv, tasks = run.shape.batch * heads_kv * a_head;
  if (run.gradients.fresh) zero_unseen(run, blocks);
  BackwardOrder order(tasks, a_head, run.gradients, poll);
  parallel_tasks(
      run.threads, tasks,
      [&](index_t index, int thread) {
        if (order.stopped()) return;
        order.guard([&] {
          Task(run, order, blocks[static_cast<std::size_t>(index % a_head)], index, index / a_head / heads_kv,
               index / a_head % heads_kv, thread)
              .walk();
        });
      },
      [&] { order.breathe(0); });
}

}  // namespace ringattn::cpu
