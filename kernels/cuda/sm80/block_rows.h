// Which queries the rows of a block of threads are. Where queries are few, the rows are those of several
// heads that read the same keys: row t is query t % group_rows of head t / group_rows. Example: 128 rows, 3
// queries of 8 heads a KV head: group_rows is 16, and row 35 is query 3 of head 2, which does not exist; row
// 34 is the last one of head 2.
#pragma once
#include "kernels/cuda/element.h"
#include "kernels/cuda/sm80/step.h"
#include "kernels/cuda/sm80/tile.h"

namespace ringattn::cuda::sm80 {

// The queries that are the rows of a block.
struct BlockRows {
  index_t head, first, first_state;  // of row 0
  int heads, valid;                  // that exist, and queries of each
  int group_rows;

  // Row t as heads and queries counted through, `rows` of a head; -1: there is none.
  __device__ __forceinline__ index_t at(int t, index_t rows) const { return at(t, rows, first); }
  // Likewise in the arrays of its state.
  __device__ __forceinline__ index_t state_at(int t, index_t rows) const { return at(t, rows, first_state); }

  // Head and query of a row that exists.
  __device__ __forceinline__ index_t head_at(int t) const { return head + t / group_rows; }
  __device__ __forceinline__ index_t query_at(int t) const { return first + (t & (group_rows - 1)); }

 private:
  __device__ __forceinline__ index_t at(int t, index_t rows, index_t from) const {
    const int query = t & (group_rows - 1), h = t / group_rows;  // a power of two
    return h < heads && query < valid ? (head + h) * rows + from + query : -1;
  }
};

__device__ __forceinline__ Group block_group(const AttendParams& a) {
  return ptx::load_global(a.walk.groups + blockIdx.x % static_cast<unsigned>(a.walk.count));
}

// Cheap to form, and formed where it is wanted rather than kept in registers.
__device__ __forceinline__ BlockRows block_rows(const AttendParams& a, int rows) {
  const Group group = block_group(a);
  const index_t pack = rows / a.group_rows, packs = (a.heads_a_kv + pack - 1) / pack;
  const index_t at = blockIdx.x / static_cast<unsigned>(a.walk.count);
  const index_t skipped = at % packs * pack, heads = a.heads_a_kv - skipped;
  const index_t left = a.q_rows - group.first_row;
  return {.head = at / packs * a.heads_a_kv + skipped,
          .first = group.first_row,
          .first_state = group.first_state,
          .heads = static_cast<int>(heads < pack ? heads : pack),
          .valid = static_cast<int>(left < a.group_rows ? left : a.group_rows),
          .group_rows = a.group_rows};
}

// Whether any row of the warp sees any column. Its rows may be of several heads, and then are all queries.
__device__ __forceinline__ bool warp_sees(const AttendParams& a, const Step& step, int row0, int rows) {
  if (a.group_rows < rows) return step.any_visible(0, a.group_rows);
  const int begin = row0 & (a.group_rows - 1);
  return step.any_visible(begin, begin + rows);
}

// What the row of a lane sees, of the part of 16 rows from row0 on.
__device__ __forceinline__ Step::Seen seen_by(const AttendParams& a, const Step& step, int row0, int half) {
  return step.seen_by((row0 + row_of_lane(half)) & (a.group_rows - 1));
}

}  // namespace ringattn::cuda::sm80
