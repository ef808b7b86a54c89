// The way of a block of threads through the pieces of its group, some columns at a time, and what is visible.
#pragma once
#include "kernels/cuda/params.h"
#include "kernels/cuda/ptx.h"

namespace ringattn::cuda::sm80 {

// The columns of a piece from `first` on.
struct Step {
  index_t first;
  int columns;  // 1 to kColumns
  int lo, hi;   // column c of the step is visible to row i of the group iff lo <= c - i <= hi
  int row_begin, row_end;

  // Of the columns of the step those that row i sees are [from, to).
  struct Seen {
    int from, to;
    __device__ __forceinline__ bool has(int column) const { return from <= column && column < to; }
  };
  __device__ __forceinline__ Seen seen_by(int row) const {
    const bool inside = row_begin <= row && row < row_end;
    const int end = row + hi + 1;
    return {row + lo, inside ? end < columns ? end : columns : 0};
  }
  // Whether no pair of rows [begin, end) need be masked.
  __device__ __forceinline__ bool all_visible(int begin, int end, int wanted) const {
    return columns == wanted && row_begin <= begin && row_end >= end && lo <= 1 - end &&
           hi >= wanted - 1 - begin;
  }
  // Whether any pair of rows [begin, end) is visible.
  __device__ __forceinline__ bool any_visible(int begin, int end) const {
    const int first_row = begin > row_begin ? begin : row_begin,
              last_row = (end < row_end ? end : row_end) - 1;
    return first_row <= last_row && lo <= columns - 1 - first_row && hi >= -last_row;
  }
};

// A place on the way: piece `piece` of all pieces, from column `first` on.
template <int kColumns>
struct Place {
  index_t piece, end;  // no piece is left when they are equal
  index_t first;

  __device__ __forceinline__ bool left() const { return piece < end; }

  __device__ __forceinline__ Step step(const Walk& walk) const {
    const Piece at = ptx::load_global(walk.pieces + piece);
    // Distances that matter are below 256; a band's ends may not even fit 32 bits.
    const auto near = [this](index_t x) {
      const index_t distance = x - first;
      return static_cast<int>(distance < -1024 ? -1024 : distance > 1024 ? 1024 : distance);
    };
    const index_t columns = at.end - first;
    return {.first = first,
            .columns = static_cast<int>(columns < kColumns ? columns : kColumns),
            .lo = near(at.lo),
            .hi = near(at.hi),
            .row_begin = at.row_begin,
            .row_end = at.row_end};
  }

  __device__ __forceinline__ Place next(const Walk& walk) const {
    Place after{piece, end, first + kColumns};
    if (after.first < ptx::load_global(&walk.pieces[piece].end)) return after;
    ++after.piece;
    if (after.left()) after.first = ptx::load_global(&walk.pieces[after.piece].begin);
    return after;
  }
};

template <int kColumns>
__device__ __forceinline__ Place<kColumns> first_place(const Walk& walk, const Group& group) {
  return {group.first_piece, group.first_piece + group.pieces,
          ptx::load_global(&walk.pieces[group.first_piece].begin)};
}

}  // namespace ringattn::cuda::sm80
