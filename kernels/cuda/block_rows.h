// Which queries the rows of a block of threads of attend are, where heads share it (pack.h): row t is query
// t % group_rows of head t / group_rows. Example: 3 queries of 8 heads a KV head and group_rows 16: row 35 is
// query 3 of head 2, which does not exist; row 34 is the last one of head 2.
#pragma once
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda {

// Queries [first, last] of a group.
struct Queries {
  int first, last;
};

struct BlockRows {
  index_t head, first, first_state;  // of row 0
  int heads, valid;                  // that exist, and queries of each
  int group_rows;

  // One past the last row that exists.
  __device__ __forceinline__ int end() const { return (heads - 1) * group_rows + valid; }

  // Row t as heads and queries counted through, `rows` of a head; -1: there is none.
  __device__ __forceinline__ index_t at(int t, index_t rows) const { return at(t, rows, first); }
  // Likewise in the arrays of its state.
  __device__ __forceinline__ index_t state_at(int t, index_t rows) const { return at(t, rows, first_state); }

  // Between which the queries of rows from `from` on are, `count` of them or fewer, but one at least: those
  // of the rows themselves, if they are of one head, otherwise all.
  __device__ __forceinline__ Queries queries(int from, int count) const {
    const int to = (from + count < end() ? from + count : end()) - 1, h = from / group_rows;
    if (to / group_rows != h) return {0, valid - 1};
    const int last = to - h * group_rows;
    return {from - h * group_rows, last < valid ? last : valid - 1};
  }

  // Head and query of a row that exists.
  __device__ __forceinline__ index_t head_at(int t) const { return head + t / group_rows; }
  __device__ __forceinline__ index_t query_at(int t) const { return first + t % group_rows; }

 private:
  __device__ __forceinline__ index_t at(int t, index_t rows, index_t from) const {
    const int h = t / group_rows, query = t - h * group_rows;
    return h < heads && query < valid ? (head + h) * rows + from + query : -1;
  }
};

// Of a group of queries and pack number `pack` of all packs, which are fewer than blocks of threads.
__device__ __forceinline__ BlockRows block_rows_of(const AttendParams& a, const Group& group, index_t pack) {
  const auto number = static_cast<unsigned>(pack), packs = static_cast<unsigned>(a.packs_a_kv);
  const index_t skipped = static_cast<index_t>(number % packs) * a.group_heads;
  const index_t heads = a.heads_a_kv - skipped;
  const index_t left = a.q_rows - group.first_row;
  return {.head = static_cast<index_t>(number / packs) * a.heads_a_kv + skipped,
          .first = group.first_row,
          .first_state = group.first_state,
          .heads = static_cast<int>(heads < a.group_heads ? heads : a.group_heads),
          .valid = static_cast<int>(left < a.group_rows ? left : a.group_rows),
          .group_rows = a.group_rows};
}

}  // namespace ringattn::cuda
