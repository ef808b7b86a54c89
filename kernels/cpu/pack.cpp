#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/cpu/parallel.h"
#include "kernels/cpu/stage.h"

namespace ringattn::cpu {
namespace {

// Rows [first, first + 64) of V, 8 columns of two rows at a time.
void pack_value_pairs(const Target& target, const ConstTensorView& v, index_t batch, index_t head,
                      index_t first, index_t v_rows, std::byte* panels) {
  static constexpr std::uint16_t kNoRow[kMaxDim] = {};
  const auto row = [&](index_t j) {
    if (j >= v.rows()) return kNoRow;
    return reinterpret_cast<const std::uint16_t*>(element_at(v, batch, j, head));
  };
  auto* to = reinterpret_cast<std::uint16_t*>(panels);
  for (index_t j = 0; j < v_rows; j += 2, to += 2 * kPanel)
    target.interleave_rows(row(first + j), row(first + j + 1), v.dim(), to, v_rows * kPanel);
}

// Rows [first, first + 64) of V, 8 columns at a time.
void pack_values(const Target& target, const ConstTensorView& v, index_t batch, index_t head, index_t first,
                 index_t v_rows, float* panels, bool stream) {
  const Rotation none;
  Stage stage(target, none);
  for (index_t j = 0; j < v_rows; j += kPanel) {
    stage.turn_to(first + j, v.rows());
    stage.load(v, batch, head, 1.0);
    target.rows_to_panels(stage.row(0), stage.stride(), v.dim(), panels + j * kPanel, v_rows * kPanel,
                          stream);
  }
}

// Of the scaled scores of a lane, natural logarithm. A row that saw nothing has sum 0, of which log makes
// -inf; a NaN stays one.
float log_sum_exp(const RowState& rows, index_t lane, float slope) {
  const double maximum = double{rows.shift[lane]} * double{slope} * std::numbers::ln2;
  return static_cast<float>(maximum + std::log(double{rows.sum[lane]}));
}

}  // namespace

void PairedRows::take(const Target& target, const Stage& stage, DType dtype, index_t dim) {
  for (int r = 0; r < kPanel; ++r) {
    std::byte* row = begin_row(r, stage.valid(), dim);
    if (r < stage.valid()) target.narrow(stage.row(r), dtype, dim, row);
  }
}

void PairedRows::copy(const ConstTensorView& t, index_t batch, index_t head, index_t first, int valid) {
  const auto bytes = static_cast<std::size_t>(t.dim()) * size_of(t.dtype);
  for (int r = 0; r < kPanel; ++r) {
    std::byte* row = begin_row(r, valid, t.dim());
    if (r < valid) std::memcpy(row, element_at(t, batch, first + r, head), bytes);
  }
}

std::byte* PairedRows::begin_row(int r, int valid, index_t dim) {
  float* row = cells + r * kStageStride;
  const index_t written = r < valid ? dim / 2 : 0;
  std::fill(row + written, row + (dim + 1) / 2, 0.0f);
  return reinterpret_cast<std::byte*>(row);
}

void pack_block(const Target& target, const ConstTensorView& k, const ConstTensorView& v,
                const Rotation& rotation, const BlockLayout& layout, std::byte* block, int threads) {
  const index_t key_blocks = round_up(k.rows(), kKeyBlock) / kKeyBlock;
  const bool stream = outgrows_caches(layout.bytes);
  parallel_tasks(threads, k.batch() * key_blocks, [&](index_t task, int) {
    const index_t batch = task / key_blocks, first = task % key_blocks * kKeyBlock;
    const index_t rows = layout.v_rows(first);
    Stage stage(target, rotation);
    for (index_t row = first; row < first + rows; row += kPanel) {
      stage.turn_to(row, k.rows());
      for (index_t head = 0; head < k.heads(); ++head) {
        std::byte* panel = block + layout.k_panel(batch, head, row);
        if (k.dtype == DType::f32) {
          stage.load(k, batch, head, 1.0);
          target.rows_to_panel(stage.row(0), stage.stride(), k.dim(), reinterpret_cast<float*>(panel),
                               stream);
        } else {
          PairedRows pairs;
          if (rotation.dim > 0) {
            stage.load(k, batch, head, 1.0);
            pairs.take(target, stage, k.dtype, k.dim());
          } else {
            pairs.copy(k, batch, head, row, stage.valid());
          }
          target.rows_to_panel(pairs.cells, kStageStride, layout.k_dim / 2, reinterpret_cast<float*>(panel),
                               stream);
        }
      }
    }
    for (index_t head = 0; head < v.heads(); ++head) {
      std::byte* panels = block + layout.v_panels(batch, head, first);
      if (v.dtype == DType::f32) {
        pack_values(target, v, batch, head, first, rows, reinterpret_cast<float*>(panels), stream);
      } else {
        pack_value_pairs(target, v, batch, head, first, rows, panels);
      }
    }
    if (stream) target.flush_stream();
  });
}

void unpack_group(const Target& target, const RowState& rows, const float* o, float slope,
                  const OutputRows& to) {
  alignas(64) float staged[kPanel * kStageStride], divisors[kPanel];
  const TensorView& out = to.out;
  for (index_t lane = 0; lane < kGroup; lane += kPanel) {
    const index_t row = to.group * kGroup + lane;
    const int valid = static_cast<int>(std::clamp<index_t>(out.rows() - row, 0, kPanel));
    if (valid == 0) break;
    // A row that saw nothing: o is 0 and stays it.
    for (int r = 0; r < kPanel; ++r)
      divisors[r] = rows.weight[lane + r] == 0.0f ? 1.0f : rows.weight[lane + r];
    const bool in_place = out.dtype == DType::f32 && valid == kPanel;
    float* rows_of_out =
        in_place ? reinterpret_cast<float*>(element_at(out, to.batch, row, to.head)) : staged;
    target.quotients_to_rows(o + lane, kGroup, out.dim(), divisors, rows_of_out,
                             in_place ? out.stride[1] : kStageStride, in_place && to.stream);
    for (int r = 0; r < valid; ++r) {
      if (!in_place)
        target.narrow(staged + r * kStageStride, out.dtype, out.dim(),
                      element_at(out, to.batch, row + r, to.head));
      if (!to.lse.data) continue;
      to.lse.data[to.batch * to.lse.stride[0] + to.head * to.lse.stride[1] + (row + r) * to.lse.stride[2]] =
          log_sum_exp(rows, lane + r, slope);
    }
  }
  if (to.stream) target.flush_stream();
}

bool streams(const TensorView& out) {
  return outgrows_caches(static_cast<std::size_t>(out.batch() * out.rows() * out.heads() * out.dim()) *
                         size_of(out.dtype));
}

void unpack_output(const Target& target, const StateLayout& layout, std::byte* state, float slope,
                   const TensorView& out, const LseView& lse, int threads) {
  parallel_tasks(threads, out.batch() * layout.groups, [&](index_t task, int) {
    const index_t batch = task / layout.groups, group = task % layout.groups;
    for (index_t head = 0; head < out.heads(); ++head) {
      const GroupView view = group_view(layout, state, batch, head, group);
      if (view.rows->seen == Seen::written) continue;
      if (view.rows->seen == Seen::nothing) begin_group(layout, view);
      unpack_group(
          target, *view.rows, view.o, slope,
          {.out = out, .lse = lse, .batch = batch, .head = head, .group = group, .stream = streams(out)});
    }
  });
}

}  // namespace ringattn::cpu
