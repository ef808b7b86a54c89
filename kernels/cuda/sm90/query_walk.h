// Chapter 3, backward: which blocks of queries a group of keys visits, and which queries of a block a key
// meets.
#pragma once
#include "kernels/cuda/sm90/walk.h"
#include "kernels/cuda/turns.h"

namespace ringattn::cuda::sm90 {

// What a block of threads works on, in its shared memory.
struct BackwardWork {
  int head, group;  // of keys; the number of its group
  int first_row;
  int first_piece, end_piece;
};

// The heads of queries that read its head.
__device__ __forceinline__ int first_query_head(const BackwardParams& a, const BackwardWork& work) {
  return ptx::load_shared(&work.head) * static_cast<int>(a.heads_a_kv);
}
__device__ __forceinline__ int end_query_head(const BackwardParams& a, const BackwardWork& work) {
  return first_query_head(a, work) + static_cast<int>(a.heads_a_kv);
}

// A block of queries of one piece; what consumers are told of it.
struct alignas(16) QueryTile {
  int query = 0;           // the first one, a multiple of kTurnRows; negative: there are no more
  int begin = 0, end = 0;  // of the piece
  int lo = 0, hi = 0;      // query `query` + c is visible to row i of the group iff lo <= query + c - i <= hi
  int rows = 0;            // of the group that the piece has: the first, and 2^16 times the end

  __device__ __forceinline__ int row_begin() const { return rows & 0xFFFF; }
  __device__ __forceinline__ int row_end() const { return rows >> 16; }
  // Whether each of the rows [first, last] meets all queries of the block.
  __device__ __forceinline__ bool all_visible(int first, int last) const {
    return begin <= query && query + kTurnRows <= end && row_begin() <= first && last < row_end() &&
           lo <= query - last && query + kTurnRows - 1 - first <= hi;
  }
  __device__ __forceinline__ Span seen_by(int row) const {
    if (row < row_begin() || row >= row_end()) return {0, -1};
    const int from = begin > lo + row ? begin : lo + row, last = end - 1 < hi + row ? end - 1 : hi + row;
    return {from > query ? from - query : 0, last - query < kTurnRows ? last - query : kTurnRows - 1};
  }
};
__device__ __forceinline__ void store_tile(QueryTile* to, const QueryTile& tile) {
  auto* const words = reinterpret_cast<int4*>(to);
  ptx::store_shared(words, int4{tile.query, tile.begin, tile.end, tile.lo});
  ptx::store_shared(words + 1, int4{tile.hi, tile.rows, 0, 0});
}
__device__ __forceinline__ QueryTile load_tile(const QueryTile* from) {
  const auto* const words = reinterpret_cast<const int4*>(from);
  const int4 first = ptx::load_shared(words), second = ptx::load_shared(words + 1);
  return {
      .query = first.x, .begin = first.y, .end = first.z, .lo = first.w, .hi = second.x, .rows = second.y};
}

// The blocks of a group: of its pieces and within each from the last one to the first, as the host counts the
// turns (turns.h).
//
// Backwards, since groups with the same last queries, as a causal mask has them, then follow one another a
// block apart. Forwards each would have to wait until the one before has come to where its own queries
// begin.
struct QueryWalk {
  const Walk& walk;
  int piece, first_piece;  // piece at hand; the last one to come
  QueryTile tile{};        // the block at hand

  __device__ __forceinline__ QueryWalk(const Walk& walk_, const BackwardWork& work)
      : walk(walk_),
        piece(ptx::load_shared(&work.end_piece)),
        first_piece(ptx::load_shared(&work.first_piece)) {}

  __device__ __forceinline__ bool next() {
    tile.query -= kTurnRows;
    if (tile.query + kTurnRows > tile.begin) return true;
    if (piece == first_piece) return false;
    const Piece* const at = walk.pieces + --piece;
    const int end = static_cast<int>(ptx::load_global(&at->end));
    tile = {.query = (end - 1) / kTurnRows * kTurnRows,
            .begin = static_cast<int>(ptx::load_global(&at->begin)),
            .end = end,
            .lo = near(ptx::load_global(&at->lo)),
            .hi = near(ptx::load_global(&at->hi)),
            .rows = ptx::load_global(&at->row_begin) | ptx::load_global(&at->row_end) << 16};
    return true;
  }
};

}  // namespace ringattn::cuda::sm90
