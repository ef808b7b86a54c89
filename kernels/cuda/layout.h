// Memory layouts of the CUDA kernels. All of them are arrays of rows, [batch][head][rows][stride]:
//
//   block      K, then V, in the wire dtype       what travels
//   gradients  dK, then dV, fp32                  what travels backward
//   workspace  q, and what is carried, see WorkspaceLayout
//
// `rows` is rounded up to 8 and `stride`, the elements of a row, to 16 bytes; padding is 0. So every row
// starts at a multiple of 16 bytes, which cp.async and the strides of a TMA tensor map ask for, and every
// head at one of 128, the size of a swizzle row; a box of rows of one head never begins in another one.
// Example: bf16, head_dim 80, 13 rows -> 16 rows of 160 bytes a head.
#pragma once
#include <cstddef>

#include "kernels/cpu/memory.h"
#include "kernels/kernel.h"

namespace ringattn::cuda {

using cpu::checked_product, cpu::checked_round_up, cpu::checked_sum, cpu::round_up;

inline constexpr index_t kRowPadding = 8;
inline constexpr index_t kRowAlignment = 16;  // bytes
// Of sections of one allocation, so that each is as well aligned as an allocation.
inline constexpr index_t kSectionAlignment = 256;

struct ArrayLayout {
  ArrayLayout(index_t heads, index_t valid_rows, index_t dim, std::size_t element)
      : rows(checked_round_up(valid_rows, kRowPadding)),
        stride(round_up(dim, kRowAlignment / static_cast<index_t>(element))),
        bytes(checked_product({heads, rows, stride, static_cast<index_t>(element)})) {}

  index_t rows, stride;  // of a head, padding included
  index_t bytes;
};

// Two arrays, the second right after the first.
struct PairLayout {
  PairLayout(const HeadShape& shape, index_t valid_rows, std::size_t element)
      : k(shape.batch * shape.num_heads_kv, valid_rows, shape.head_dim, element),
        v(shape.batch * shape.num_heads_kv, valid_rows, shape.head_dim_v, element),
        bytes(static_cast<std::size_t>(checked_sum(k.bytes, v.bytes))) {}

  ArrayLayout k, v;
  std::size_t bytes;
};

inline PairLayout block_layout(const HeadShape& shape, DType dtype, index_t k_rows) {
  return {shape, k_rows, size_of(dtype)};
}
inline PairLayout gradient_layout(const HeadShape& shape, index_t k_rows) {
  return {shape, k_rows, sizeof(float)};
}

// What a kernel object holds, as offsets into one allocation. Forward: q, o and two numbers a row. Backward:
// q and dout, dq and three numbers a row. Both passes share the allocation, since their rows are never needed
// at the same time.
struct WorkspaceLayout {
  WorkspaceLayout(const HeadShape& shape, DType dtype, index_t q_rows)
      : heads(shape.batch * shape.num_heads),
        q(heads, q_rows, shape.head_dim, size_of(dtype)),
        o(heads, q_rows, shape.head_dim_v, sizeof(float)),
        dout(heads, q_rows, shape.head_dim_v, size_of(dtype)),
        dq(heads, q_rows, shape.head_dim, sizeof(float)),
        numbers(heads, q_rows, 1, sizeof(float)) {
    numbers.stride = 1;  // one number a row, rows side by side
    numbers.bytes = checked_product({heads, numbers.rows, index_t{sizeof(float)}});
    const index_t end_q = section_end(0, q.bytes);
    o_at = end_q;
    numbers_at[0] = section_end(o_at, o.bytes);
    numbers_at[1] = section_end(numbers_at[0], numbers.bytes);
    forward_bytes = section_end(numbers_at[1], numbers.bytes);
    dout_at = end_q;
    dq_at = section_end(dout_at, dout.bytes);
    row_numbers_at[0] = section_end(dq_at, dq.bytes);
    row_numbers_at[1] = section_end(row_numbers_at[0], numbers.bytes);
    row_numbers_at[2] = section_end(row_numbers_at[1], numbers.bytes);
    backward_bytes = section_end(row_numbers_at[2], numbers.bytes);
  }

  static index_t section_end(index_t at, index_t bytes) {
    return checked_round_up(checked_sum(at, bytes), kSectionAlignment);
  }
  std::size_t bytes(Pass pass) const {
    return static_cast<std::size_t>(pass == Pass::forward ? forward_bytes
                                                          : std::max(forward_bytes, backward_bytes));
  }

  index_t heads;  // of all batches
  ArrayLayout q, o, dout, dq, numbers;
  index_t o_at, numbers_at[2];                // forward: o, maximum, sum
  index_t dout_at, dq_at, row_numbers_at[3];  // backward: dout, dq, lse as two floats, delta
  index_t forward_bytes, backward_bytes;
};

}  // namespace ringattn::cuda
