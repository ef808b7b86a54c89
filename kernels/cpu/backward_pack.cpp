#include "kernels/cpu/backward_pack.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stage.h"

namespace ringattn::cpu {
namespace {

void reset(RowsState& rows) {
  rows.all_alive = true;
  rows.span_id = -1;
  rows.has_total = false;
}

// The sum of all spans, wherever it is.
float* whole_sum(const Target& target, const RowsLayout& layout, const RowsView& group) {
  if (group.rows->span_id < 0) std::fill_n(group.span, layout.dq_floats, 0.0f);
  if (!group.rows->has_total) return group.span;
  target.move_sum(group.span, group.total, layout.dq_floats);
  return group.total;
}

// lse in units of log2, as two floats, so that only the rounding of lse itself remains. A row that saw
// nothing gets numbers that do no harm before a select replaces what comes of them; so does padding.
void set_row(RowsState& rows, index_t lane, double lse, double delta) {
  const bool alive = lse != -std::numeric_limits<double>::infinity();
  const double log2 = alive ? lse * std::numbers::log2e : 0;
  rows.hi[lane] = static_cast<float>(log2);
  rows.lo[lane] = static_cast<float>(log2 - double{rows.hi[lane]});
  rows.delta[lane] = alive ? static_cast<float>(delta) : 0;
  rows.alive[lane] = alive ? 1.0f : 0.0f;
  // Lanes past the last row are left out by the schedule.
  rows.all_alive &= alive;
}

// The same rows as pairs, if that is as good: see DotRange.
void pair_group(const Target& target, const RowsLayout& layout, const RowsView& view, index_t dim,
                index_t dim_v) {
  RowsState& rows = *view.rows;
  rows.pairs = target.within_magnitudes(view.q, layout.q_floats, DotRange::kLowest, DotRange::kHighest);
  if (!rows.pairs) return;
  rows.q_largest = target.largest_finite(view.q, layout.q_floats);
  rows.dout_largest = target.largest_finite(view.dout, layout.dout_floats);
  target.pairs->pair_rows(view.q, dim, view.q);
  target.pairs->pair_rows(view.dout, dim_v, view.dout);
}

}  // namespace

void pack_rows(const Target& target, const RowTensors& tensors, const Rotation& rotation, double factor,
               const RowsLayout& layout, std::byte* state, int threads, const Poll& poll) {
  const ConstTensorView &q = tensors.q, &dout = tensors.dout, &out = tensors.out;
  const ConstLseView& lse = tensors.lse;
  const Rotation none;
  const auto pack_group = [&](index_t batch, index_t group) {
    Stage q_stage(target, rotation), dout_stage(target, none), out_stage(target, none);
    for (index_t lane = 0; lane < kGroup; lane += kPanel) {
      const index_t first = group * kGroup + lane;
      for (Stage* stage : {&q_stage, &dout_stage, &out_stage}) stage->turn_to(first, q.rows());
      for (index_t head = 0; head < q.heads(); ++head) {
        const RowsView view = rows_view(layout, state, batch, head, group);
        if (lane == 0) reset(*view.rows);
        q_stage.load(q, batch, head, factor);
        dout_stage.load(dout, batch, head, 1.0);
        out_stage.load(out, batch, head, 1.0);
        target.rows_to_columns(q_stage.row(0), q_stage.stride(), q_stage.factor(), q.dim(), view.q + lane,
                               kGroup);
        target.rows_to_columns(dout_stage.row(0), dout_stage.stride(), dout_stage.factor(), dout.dim(),
                               view.dout + lane, kGroup);
        for (int r = 0; r < kPanel; ++r) {
          if (r >= q_stage.valid()) {
            set_row(*view.rows, lane + r, 0, 0);
          } else {
            const float log_sum =
                lse.data[batch * lse.stride[0] + head * lse.stride[1] + (first + r) * lse.stride[2]];
            set_row(*view.rows, lane + r, double{log_sum},
                    target.dot(dout_stage.row(r), out_stage.row(r), out.dim()));
          }
        }
      }
    }
    for (index_t head = 0; head < q.heads(); ++head) {
      const RowsView view = rows_view(layout, state, batch, head, group);
      view.rows->q_finite = target.all_finite(view.q, layout.q_floats);
      view.rows->dout_finite = target.all_finite(view.dout, layout.dout_floats);
      view.rows->pairs = false;
      if (target.pairs && q.dtype == DType::bf16) pair_group(target, layout, view, q.dim(), dout.dim());
    }
  };
  parallel_tasks(
      threads, q.batch() * layout.groups,
      [&](index_t task, int thread) {
        pack_group(task / layout.groups, task % layout.groups);
        if (thread == 0 && poll) poll();
      },
      poll);
}

void unpack_rows(const Target& target, const RowsLayout& layout, std::byte* state, const TensorView& dq,
                 double factor, const Rotation& rotation, int threads) {
  parallel_tasks(threads, dq.batch() * layout.groups, [&](index_t task, int) {
    const index_t batch = task / layout.groups, group = task % layout.groups;
    Stage stage(target, rotation, Turn::back);
    std::vector<const float*> sums;
    for (index_t head = 0; head < dq.heads(); ++head)
      sums.push_back(whole_sum(target, layout, rows_view(layout, state, batch, head, group)));
    for (index_t lane = 0; lane < kGroup; lane += kPanel) {
      stage.turn_to(group * kGroup + lane, dq.rows());
      for (index_t head = 0; head < dq.heads(); ++head) {
        target.columns_to_rows(sums[static_cast<std::size_t>(head)] + lane, kGroup, dq.dim(), stage.rows(),
                               kStageStride);
        stage.store(stage.rows(), kStageStride, dq, batch, head, factor);
      }
    }
  });
}

void unpack_gradients(const Target& target, const GradientLayout& layout, const std::byte* gradients,
                      const TensorView& dk, const TensorView& dv, double factor, const Rotation& rotation,
                      int threads) {
  const Rotation none;
  const index_t chunks = (dk.rows() + kKeyBlock - 1) / kKeyBlock;
  parallel_tasks(threads, dk.batch() * chunks, [&](index_t task, int) {
    const index_t batch = task / chunks, begin = task % chunks * kKeyBlock;
    Stage dk_stage(target, rotation, Turn::back), dv_stage(target, none, Turn::back);
    for (index_t first = begin; first < std::min(begin + kKeyBlock, dk.rows()); first += kPanel) {
      dk_stage.turn_to(first, dk.rows());
      dv_stage.turn_to(first, dk.rows());
      for (index_t head = 0; head < dk.heads(); ++head) {
        const auto* from = reinterpret_cast<const float*>(gradients + layout.row(batch, head, first));
        const index_t stride = layout.k_floats + layout.v_floats;
        dk_stage.store(from, stride, dk, batch, head, factor);
        dv_stage.store(from + layout.k_floats, stride, dv, batch, head, 1.0);
      }
    }
  });
}

}  // namespace ringattn::cpu
