// Memory layouts of the CPU kernel. None depends on the vector width, so a block packed by one rank can be
// read by another with a different instruction set, and state survives a change of it.
//
// A block (what travels), for each (batch, KV head), elements in the wire dtype:
//   K panels  [rows / 8][head_dim][8]                8 key rows side by side
//   V panels  per 64 rows: [dim_v / 8][rows][8]      8 columns side by side; the last one has fewer rows
// with rows rounded up to 8 (zero rows) and dim_v = head_dim_v rounded up to 8 (zero columns). 16-bit
// elements travel in pairs of neighbours along the dimension that a product sums, a pair to each 32-bit cell:
//   K panels  [rows / 8][head_dim / 2][8][2]         an odd head_dim is rounded up (zero elements)
//   V panels  per 64 rows: [dim_v / 8][rows / 2][8][2]
//
// A group: 48 consecutive query rows of one head, a lane each, fp32. What is carried from block to block:
//   o         [dim_v][48]       output so far, unnormalised
//   RowState                    maximum and sum so far
// Example: head_dim 128, 100 query rows -> 3 groups of 25,408 bytes; 44 lanes of the last are padding.
// And for as long as a task works on it, besides:
//   q         [head_dim][48]    turned, times Scaling::factor; or bf16 pairs [head_dim / 2][48][2], if
//                               RowState::pairs, in the first half of the same place
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/check.h"
#include "kernels/cpu/memory.h"
#include "kernels/kernel.h"

namespace ringattn::cpu {

inline constexpr int kPanel = 8;           // rows of a K panel, columns of a V panel
inline constexpr int kGroup = 48;          // lanes of a group: 3 x 16, 6 x 8 or 12 x 4
inline constexpr int kLargestVector = 16;  // lanes
inline constexpr int kKeyBlock = 64;       // rows of a V panel
inline constexpr int kStepKeys = 256;      // keys whose probabilities are held at a time, at most
inline constexpr int kKeySpan = 2048;      // keys whose output is summed apart, see run.cpp
inline constexpr int kMaxDim = kLargestDim;

// softmax_scale * log2(e) as factor * slope: `factor` is 0 or a power of two with a sign, which changes no
// bit of a mantissa of Q; `slope` in [1, 2) is applied in fp32 to the difference of a score and the maximum.
// So the scores of 16-bit inputs carry no error but that of summing, and equal scores have weight 1 exactly.
struct Scaling {
  double factor;
  float slope;
};

// Per lane: what is subtracted from a score before exp2 (0 until the first visible key, so that a score of
// -inf stays -inf), the score above which it must be raised (-inf until then), and the sum of
// 2^(slope * (score - shift)). `weight` is the sum of the same numbers as they multiply V: rounded, where
// that is done in bf16. It divides the output, so that weights add up to 1; lse comes from `sum`. `shift` may
// lag behind the true maximum: see kLag.
enum class Seen : std::uint8_t {
  nothing,  // all the rest may hold anything
  some,
  written,  // to the caller's output; all the rest may hold anything
};
struct alignas(64) RowState {
  float shift[kGroup], limit[kGroup], sum[kGroup], weight[kGroup];
  bool pairs;  // how the group's queries are held, during a task
  Seen seen;
};

struct BlockLayout {
  BlockLayout(const HeadShape& shape, DType dtype, index_t k_rows)
      : heads(shape.num_heads_kv),
        padded_rows(round_up(k_rows, kPanel)),
        head_dim(shape.head_dim),
        k_dim(round_up(shape.head_dim, dtype == DType::f32 ? 1 : 2)),
        dim_v(round_up(shape.head_dim_v, kPanel)),
        element(static_cast<index_t>(size_of(dtype))),
        k_bytes(checked_product({padded_rows, k_dim, element})),
        head_bytes(checked_round_up(checked_product({padded_rows, k_dim + dim_v, element}), 64)),
        bytes(static_cast<std::size_t>(checked_product({shape.batch, heads, head_bytes}))) {}

  // `row` is a multiple of 8.
  std::size_t k_panel(index_t batch, index_t head, index_t row) const {
    return static_cast<std::size_t>((batch * heads + head) * head_bytes + row * k_dim * element);
  }
  // Start of the V panels of the 64 rows from `row` on, a multiple of 64.
  std::size_t v_panels(index_t batch, index_t head, index_t row) const {
    return static_cast<std::size_t>((batch * heads + head) * head_bytes + k_bytes + row * dim_v * element);
  }
  // Rows of those panels.
  index_t v_rows(index_t row) const {
    return padded_rows - row < kKeyBlock ? padded_rows - row : index_t{kKeyBlock};
  }

  index_t heads, padded_rows, head_dim;
  index_t k_dim;  // head_dim as it travels
  index_t dim_v, element, k_bytes, head_bytes;
  std::size_t bytes;
};

struct StateLayout {
  StateLayout(const HeadShape& shape, index_t q_rows)
      : heads(shape.num_heads),
        groups(round_up(q_rows, kGroup) / kGroup),
        o_floats(kGroup * round_up(shape.head_dim_v, kPanel)),
        group_bytes(o_floats * index_t{sizeof(float)} + index_t{sizeof(RowState)}),
        bytes(static_cast<std::size_t>(checked_product({shape.batch, heads, groups, group_bytes}))) {}

  std::size_t offset(index_t batch, index_t head, index_t group) const {
    return static_cast<std::size_t>(((batch * heads + head) * groups + group) * group_bytes);
  }

  index_t heads, groups, o_floats, group_bytes;
  std::size_t bytes;
};

struct GroupView {
  float* q;  // null but during a task
  float* o;
  RowState* rows;
};
// What is carried of a group.
inline GroupView group_view(const StateLayout& layout, std::byte* state, index_t batch, index_t head,
                            index_t group) {
  auto* o = reinterpret_cast<float*>(state + layout.offset(batch, head, group));
  return {.q = nullptr, .o = o, .rows = reinterpret_cast<RowState*>(o + layout.o_floats)};
}

// Rows that have seen nothing yet but may from now on, which asks for an o of 0.
inline void begin_rows(RowState& rows) {
  std::fill_n(rows.shift, kGroup, 0.0f);
  std::fill_n(rows.limit, kGroup, -std::numeric_limits<float>::infinity());
  std::fill_n(rows.sum, kGroup, 0.0f);
  std::fill_n(rows.weight, kGroup, 0.0f);
  rows.seen = Seen::some;
}
inline void begin_group(const StateLayout& layout, const GroupView& group) {
  begin_rows(*group.rows);
  std::fill_n(group.o, layout.o_floats, 0.0f);
}

// Rows of bytes, `stride` bytes apart, that will be read.
struct MemoryRows {
  const std::byte* at = nullptr;
  index_t stride = 0;
  int rows = 0, row_bytes = 0;
};

}  // namespace ringattn::cpu
