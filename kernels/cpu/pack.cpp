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

void reset(const GroupView& group, bool pairs) {
  std::fill_n(group.rows->shift, kGroup, 0.0f);
  std::fill_n(group.rows->limit, kGroup, -std::numeric_limits<float>::infinity());
  std::fill_n(group.rows->sum, kGroup, 0.0f);
  std::fill_n(group.rows->weight, kGroup, 0.0f);
  group.rows->pairs = pairs;
  group.rows->empty = true;
}

// Eight rows of 16-bit elements as pairs, to be turned into columns of cells.
struct PairedRows {
  alignas(64) float cells[kPanel * kStageStride];

  // Rounds what the stage holds.
  void take(const Target& target, const Stage& stage, DType dtype, index_t dim) {
    for (int r = 0; r < kPanel; ++r) {
      std::byte* row = begin_row(r, stage.valid(), dim);
      if (r < stage.valid()) target.narrow(stage.row(r), dtype, dim, row);
    }
  }
  // Copies rows [first, first + valid) as they are.
  void copy(const ConstTensorView& t, index_t batch, index_t head, index_t first, int valid) {
    const auto bytes = static_cast<std::size_t>(t.dim()) * size_of(t.dtype);
    for (int r = 0; r < kPanel; ++r) {
      std::byte* row = begin_row(r, valid, t.dim());
      if (r < valid) std::memcpy(row, element_at(t, batch, first + r, head), bytes);
    }
  }

 private:
  // 0 where nothing will be written: a row past the end, the last half cell of an odd row.
  std::byte* begin_row(int r, int valid, index_t dim) {
    float* row = cells + r * kStageStride;
    const index_t written = r < valid ? dim / 2 : 0;
    std::fill(row + written, row + (dim + 1) / 2, 0.0f);
    return reinterpret_cast<std::byte*>(row);
  }
};

// Eight lanes of a group's queries as pairs. Returns whether they may be multiplied as such.
bool pack_query_pairs(const Target& target, const Stage& stage, index_t dim, float* q) {
  PairedRows rows;
  rows.take(target, stage, DType::bf16, dim);
  target.rows_to_columns(rows.cells, (dim + 1) / 2, q, kGroup);
  bool within = true;
  for (int r = 0; r < stage.valid(); ++r)
    within &= target.within_magnitudes(stage.row(r), dim, DotRange::kLowest, DotRange::kHighest);
  return within;
}

// The queries of one head's group in fp32.
void pack_wide_queries(const Target& target, const ConstTensorView& q, const Rotation& rotation,
                       double factor, index_t batch, index_t head, index_t group, float* to) {
  Stage stage(target, rotation);
  for (index_t lane = 0; lane < kGroup; lane += kPanel) {
    stage.turn_to(group * kGroup + lane, q.rows());
    stage.load(q, batch, head, factor);
    target.rows_to_columns(stage.rows(), q.dim(), to + lane, kGroup);
  }
}

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

// Rows [first, first + 64) of V, 8 columns at a time. V is not turned, so its elements are copied as they
// are.
void pack_values(const ConstTensorView& v, index_t batch, index_t head, index_t first, index_t v_rows,
                 std::byte* panels) {
  const std::size_t element = size_of(v.dtype);
  const std::size_t chunk = kPanel * element;
  const index_t whole = v.dim() / kPanel, rest = v.dim() % kPanel;
  const std::size_t panel_bytes = static_cast<std::size_t>(v_rows) * chunk;
  for (index_t j = 0; j < v_rows; ++j) {
    std::byte* to = panels + static_cast<std::size_t>(j) * chunk;
    if (first + j >= v.rows()) {
      for (index_t c = 0; c < whole + (rest > 0); ++c, to += panel_bytes) std::memset(to, 0, chunk);
      continue;
    }
    const std::byte* from = element_at(v, batch, first + j, head);
    for (index_t c = 0; c < whole; ++c, to += panel_bytes, from += chunk) std::memcpy(to, from, chunk);
    if (rest > 0) {
      const std::size_t used = static_cast<std::size_t>(rest) * element;
      std::memcpy(to, from, used);
      std::memset(to + used, 0, chunk - used);
    }
  }
}

// Of the scaled scores of a lane, natural logarithm. A row that saw nothing has sum 0, of which log makes
// -inf; a NaN stays one.
float log_sum_exp(const RowState& rows, index_t lane, float slope) {
  const double maximum = double{rows.shift[lane]} * double{slope} * std::numbers::ln2;
  return static_cast<float>(maximum + std::log(double{rows.sum[lane]}));
}

}  // namespace

void pack_queries(const Target& target, const ConstTensorView& q, const Rotation& rotation, double factor,
                  const StateLayout& layout, std::byte* state, int threads) {
  const bool pairs = target.pairs && q.dtype == DType::bf16;
  parallel_tasks(threads, q.batch() * layout.groups, [&](index_t task, int) {
    const index_t batch = task / layout.groups, group = task % layout.groups;
    Stage stage(target, rotation);
    for (index_t lane = 0; lane < kGroup; lane += kPanel) {
      stage.turn_to(group * kGroup + lane, q.rows());
      for (index_t head = 0; head < q.heads(); ++head) {
        const GroupView view = group_view(layout, state, batch, head, group);
        if (lane == 0) reset(view, pairs);
        stage.load(q, batch, head, factor);
        if (pairs) {
          view.rows->pairs &= pack_query_pairs(target, stage, q.dim(), view.q + lane);
        } else {
          target.rows_to_columns(stage.rows(), q.dim(), view.q + lane, kGroup);
        }
      }
    }
    for (index_t head = 0; pairs && head < q.heads(); ++head) {
      const GroupView view = group_view(layout, state, batch, head, group);
      if (!view.rows->pairs) pack_wide_queries(target, q, rotation, factor, batch, head, group, view.q);
    }
  });
}

void pack_block(const Target& target, const ConstTensorView& k, const ConstTensorView& v,
                const Rotation& rotation, const BlockLayout& layout, std::byte* block, int threads) {
  const index_t key_blocks = round_up(k.rows(), kKeyBlock) / kKeyBlock;
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
          target.rows_to_columns(stage.rows(), k.dim(), reinterpret_cast<float*>(panel), kPanel);
        } else {
          PairedRows pairs;
          if (rotation.dim > 0) {
            stage.load(k, batch, head, 1.0);
            pairs.take(target, stage, k.dtype, k.dim());
          } else {
            pairs.copy(k, batch, head, row, stage.valid());
          }
          target.rows_to_columns(pairs.cells, layout.k_dim / 2, reinterpret_cast<float*>(panel), kPanel);
        }
      }
    }
    for (index_t head = 0; head < v.heads(); ++head) {
      std::byte* panels = block + layout.v_panels(batch, head, first);
      if (v.dtype == DType::f32) {
        pack_values(v, batch, head, first, rows, panels);
      } else {
        pack_value_pairs(target, v, batch, head, first, rows, panels);
      }
    }
  });
}

void unpack_output(const Target& target, const StateLayout& layout, std::byte* state, float slope,
                   const TensorView& out, const LseView& lse, int threads) {
  parallel_tasks(threads, out.batch() * layout.groups, [&](index_t task, int) {
    const index_t batch = task / layout.groups, group = task % layout.groups;
    alignas(64) float rows[kPanel * kStageStride];
    for (index_t lane = 0; lane < kGroup; lane += kPanel) {
      const index_t row = group * kGroup + lane;
      for (index_t head = 0; head < out.heads(); ++head) {
        const GroupView view = group_view(layout, state, batch, head, group);
        if (view.rows->empty) std::fill_n(view.o, layout.o_floats, 0.0f);
        target.columns_to_rows(view.o + lane, kGroup, out.dim(), rows, kStageStride);
        for (index_t r = 0; r < kPanel && row + r < out.rows(); ++r) {
          float* values = rows + r * kStageStride;
          const float weight = view.rows->weight[lane + r];
          // A row that saw nothing: o is 0 and stays it.
          target.normalize(values, out.dim(), weight == 0.0f ? 1.0f : weight, out.dtype,
                           element_at(out, batch, row + r, head));
          if (!lse.data) continue;
          lse.data[batch * lse.stride[0] + head * lse.stride[1] + (row + r) * lse.stride[2]] =
              log_sum_exp(*view.rows, lane + r, slope);
        }
      }
    }
  });
}

}  // namespace ringattn::cpu
