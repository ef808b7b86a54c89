// Memory layouts of the CPU kernel's backward. As in packed.h none depends on the vector width.
//
// A gradient block (what travels), fp32, for each (batch, KV head):
//   rows      [rows rounded up to 8][head_dim + dim_v, each rounded up to 8]      dK | dV
// dK lacks the factor softmax_scale / Scaling::factor until it is finished. All rows of a head lie in the
// order in which tasks take them, so that the first bytes to arrive are the first ones needed.
//
// A group (what stays): 48 consecutive query rows of one head, a lane each, fp32:
//   RowsState
//   q         [head_dim][48]                   turned, times Scaling::factor; or bf16 pairs
//                                              [head_dim / 2][48][2] in the same place, if RowsState::pairs
//   dout      [head_dim_v][48]                 likewise
//   span      [head_dim rounded up to 8][48]   dq / softmax_scale, of the last span of keys
//   total     likewise                         of all spans before; seldom touched, so it comes last
// Example: head_dim 128, 100 query rows -> 3 groups of 99,136 bytes; 44 lanes of the last are padding.
#pragma once
#include "kernels/cpu/packed.h"

namespace ringattn::cpu {

// Per lane: lse * log2(e) as hi + lo, delta, and 1 where the lane holds a row that has seen something, else
// 0.
struct alignas(64) RowsState {
  float hi[kGroup], lo[kGroup], delta[kGroup], alive[kGroup];
  bool all_alive;
  bool q_finite, dout_finite;     // of all 48 rows
  bool pairs;                     // how q and dout are held
  float q_largest, dout_largest;  // of the finite numbers; pairs only
  index_t span_id;  // of the span of keys that `span` holds the sum of; -1: none yet, it may hold anything
  bool has_total;   // false: `total` may hold anything
};

struct GradientLayout {
  GradientLayout(const HeadShape& shape, index_t k_rows)
      : heads(shape.num_heads_kv),
        k_floats(round_up(shape.head_dim, kPanel)),
        v_floats(round_up(shape.head_dim_v, kPanel)),
        row_bytes((k_floats + v_floats) * index_t{sizeof(float)}),
        head_bytes(checked_product({checked_round_up(k_rows, kPanel), row_bytes})),
        bytes(static_cast<std::size_t>(checked_product({shape.batch, heads, head_bytes}))) {}

  // dK of a row; its dV follows after k_floats floats.
  std::size_t row(index_t batch, index_t head, index_t row) const {
    return static_cast<std::size_t>((batch * heads + head) * head_bytes + row * row_bytes);
  }

  index_t heads, k_floats, v_floats, row_bytes, head_bytes;
  std::size_t bytes;
};

struct RowsLayout {
  RowsLayout(const HeadShape& shape, index_t q_rows)
      : heads(shape.num_heads),
        groups(checked_round_up(q_rows, kGroup) / kGroup),
        q_floats(kGroup * shape.head_dim),
        dout_floats(kGroup * shape.head_dim_v),
        dq_floats(kGroup * round_up(shape.head_dim, kPanel)),
        group_bytes((q_floats + dout_floats + 2 * dq_floats) * index_t{sizeof(float)} +
                    index_t{sizeof(RowsState)}),
        bytes(static_cast<std::size_t>(checked_product({shape.batch, heads, groups, group_bytes}))) {}

  std::size_t offset(index_t batch, index_t head, index_t group) const {
    return static_cast<std::size_t>(((batch * heads + head) * groups + group) * group_bytes);
  }

  // Of a group, from its start on: what a step touches.
  index_t step_bytes() const { return group_bytes - dq_floats * index_t{sizeof(float)}; }

  index_t heads, groups, q_floats, dout_floats, dq_floats, group_bytes;
  std::size_t bytes;
};

// One group inside the state.
struct RowsView {
  RowsState* rows;
  float *q, *dout, *span, *total;
};
inline RowsView rows_view(const RowsLayout& layout, std::byte* state, index_t batch, index_t head,
                          index_t group) {
  auto* rows = reinterpret_cast<RowsState*>(state + layout.offset(batch, head, group));
  auto* q = reinterpret_cast<float*>(rows + 1);
  float* dout = q + layout.q_floats;
  float* span = dout + layout.dout_floats;
  return {.rows = rows, .q = q, .dout = dout, .span = span, .total = span + layout.dq_floats};
}

// Keys of a task. Its panels and sums, and what passes by of the groups, should stay in an L2 cache of 1 MiB:
// 0.7 MiB at head_dim 128. It depends on the shape alone, since sums are cut where tasks are.
constexpr index_t task_keys(const HeadShape& shape) {
  const index_t dims = shape.head_dim + shape.head_dim_v;
  return dims <= 256 ? 256 : dims <= 512 ? 128 : 64;
}

// Scratch of one thread: what a task keeps of its keys, and what it makes for one group. Rows of queries, dK
// and dV are an odd number of cache lines apart, so that they do not compete for a cache set.
struct ScratchLayout {
  ScratchLayout(const HeadShape& shape, DType dtype)
      : keys(task_keys(shape)),
        k_stride(round_up(shape.head_dim, 16) | 16),
        v_stride(round_up(shape.head_dim_v, 16) | 16),
        dk(2 * keys * kGroup),
        dv(dk + keys * k_stride),
        q_rows(dv + keys * v_stride),
        dout_rows(q_rows + kGroup * k_stride),
        v_panels(dout_rows + kGroup * v_stride),
        k_columns(v_panels + keys * round_up(shape.head_dim_v, kPanel)),
        k_panels(k_columns + keys * round_up(shape.head_dim, kPanel)),
        v_pairs(k_panels + (dtype == DType::f32 ? 0 : keys * shape.head_dim)),
        k_column_pairs(v_pairs + (dtype == DType::bf16 ? keys * round_up(shape.head_dim_v, kPanel) / 2 : 0)),
        q_wide(k_column_pairs + (dtype == DType::bf16 ? keys * round_up(shape.head_dim, kPanel) / 2 : 0)),
        dout_wide(q_wide + (dtype == DType::bf16 ? kGroup * shape.head_dim : 0)),
        floats(dout_wide + (dtype == DType::bf16 ? kGroup * shape.head_dim_v : 0)) {}

  index_t keys, k_stride, v_stride;
  // In floats from the start; p [keys][48] and ds [keys][48] come first.
  index_t dk, dv;             // [keys][stride]
  index_t q_rows, dout_rows;  // [48][stride]
  index_t v_panels;           // [keys / 8][dim_v][8]
  index_t k_columns;          // [head_dim / 8][keys][8]
  index_t k_panels;           // [keys / 8][head_dim][8], but for f32, which is used in place
  // For bf16 only, of which pairs may be multiplied as they are. Rows of the queries and of dS then take half
  // of their places, and dS as pairs along keys the second half of its place.
  index_t v_pairs;            // [keys / 8][dim_v / 2][8][2]
  index_t k_column_pairs;     // [head_dim / 8][keys / 2][8][2]
  index_t q_wide, dout_wide;  // [head_dim][48], [head_dim_v][48]: of a group that holds pairs
  index_t floats;
};

}  // namespace ringattn::cpu
