// Chapter 3: which key tiles a group of queries visits, and which keys of a tile a query sees.
#pragma once
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda::sm90 {

// Rows of a head, at most: differences of a row and a band's end then fit 32 bits, and so do TMA coordinates.
inline constexpr index_t kMostRows = index_t{1} << 30;

// Columns first .. last of a tile, counted from its first key; none if first > last.
struct Span {
  int first, last;
  __device__ __forceinline__ bool has(int column) const { return first <= column && column <= last; }
};

// A band's ends may be as far as 2^60; beyond 2^30 nothing changes.
__device__ __forceinline__ int near(index_t x) {
  return static_cast<int>(x < -kMostRows ? -kMostRows : x > kMostRows ? kMostRows : x);
}

// The tiles of a group in order. Producer and consumers walk by themselves and meet the same tiles, so that
// nothing is passed between them. A tile begins at the first key of its piece, whatever its number: TMA needs
// no alignment of rows, and a narrow band then costs the fewest tiles.
template <int kKeys>
struct KeyWalk {
  const Piece* next_piece;
  int pieces;            // left from there on
  int key = 0, end = 0;  // first key of the tile at hand; end of its piece
  int lo = 0, hi = 0;    // column c is visible to row i of the group iff lo <= key + c - i <= hi
  int rows = 0;          // of the group that the piece has: the first, and 2^16 times the end

  __device__ __forceinline__ KeyWalk(const Walk& walk, const Group& group)
      : next_piece(walk.pieces + group.first_piece), pieces(static_cast<int>(group.pieces)) {}

  __device__ __forceinline__ bool next() {
    key += kKeys;
    if (key < end) return true;
    if (pieces-- == 0) return false;
    const Piece piece = ptx::load_global(next_piece++);
    key = static_cast<int>(piece.begin), end = static_cast<int>(piece.end);
    lo = near(piece.lo), hi = near(piece.hi);
    rows = piece.row_begin | piece.row_end << 16;
    return true;
  }

  __device__ __forceinline__ int row_begin() const { return rows & 0xFFFF; }
  __device__ __forceinline__ int row_end() const { return rows >> 16; }
  // Whether each of the rows [first, last] sees all keys of the tile.
  __device__ __forceinline__ bool all_visible(int first, int last) const {
    return key + kKeys <= end && row_begin() <= first && last < row_end() && lo <= key - last &&
           key + kKeys - 1 - first <= hi;
  }
  __device__ __forceinline__ Span seen_by(int row) const {
    if (row < row_begin() || row >= row_end()) return {0, -1};
    const int first = lo + row - key, last = hi + row - key;
    return {first > 0 ? first : 0, last < end - 1 - key ? last : end - 1 - key};
  }
};

}  // namespace ringattn::cuda::sm90
