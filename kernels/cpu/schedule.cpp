#include "kernels/cpu/schedule.h"

#include <algorithm>

#include "kernels/check.h"

namespace ringattn::cpu {
namespace {

bool nothing(const Tile& tile) { return tile.q.empty() || tile.k.empty() || tile.band.lo > tile.band.hi; }

Range groups_of(const Tile& tile) { return {tile.q.begin / kGroup, (tile.q.end - 1) / kGroup + 1}; }

// The piece may be empty (k.empty()): a band need not reach every group of its tile.
Piece cut(const Tile& tile, index_t group, index_t q_rows) {
  const index_t row0 = group * kGroup;
  const Range rows{std::max(tile.q.begin, row0), std::min(tile.q.end, row0 + kGroup)};
  // Sums of a band and a row cannot overflow: |band| <= 2^60 and rows are below 2^62.
  Piece piece{
      .k = {std::max(tile.k.begin, rows.begin + tile.band.lo), std::min(tile.k.end, rows.end + tile.band.hi)},
      .lane_begin = static_cast<int>(rows.begin - row0),
      .lane_end = static_cast<int>(rows.end - row0),
      .lo = tile.band.lo + row0,
      .hi = tile.band.hi + row0};
  // Lanes past the last row are padding: letting those of the last vector see what the last row's tile sees
  // saves masking, and so does a band whose ends hide nothing from the rows that are there.
  if (rows.end != q_rows) return piece;
  piece.lane_end = static_cast<int>(round_up(piece.lane_end, kLargestVector));
  if (piece.k.begin - (rows.end - 1) >= tile.band.lo) piece.lo = -kUnbounded;
  if (piece.k.end - 1 - rows.begin <= tile.band.hi) piece.hi = kUnbounded;
  return piece;
}

}  // namespace

Schedule::Schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows)
    : first_(static_cast<std::size_t>(round_up(q_rows, kGroup) / kGroup) + 1) {
  for (const Tile& tile : tiles) check_tile(tile, q_rows, k_rows);
  const auto for_each_piece = [&](const auto& visit) {
    for (const Tile& tile : tiles) {
      if (nothing(tile)) continue;
      const Range groups = groups_of(tile);
      for (index_t group = groups.begin; group < groups.end; ++group) {
        const Piece piece = cut(tile, group, q_rows);
        if (!piece.k.empty()) visit(static_cast<std::size_t>(group), piece);
      }
    }
  };
  for_each_piece([&](std::size_t group, const Piece&) { ++first_[group + 1]; });
  for (std::size_t group = 1; group < first_.size(); ++group) first_[group] += first_[group - 1];
  pieces_.resize(first_.back());
  std::vector<std::size_t> next(first_.begin(), first_.end() - 1);
  for_each_piece([&](std::size_t group, const Piece& piece) { pieces_[next[group]++] = piece; });
  // The order of a row's keys then does not depend on the order of the tiles.
  for (std::size_t group = 0; group + 1 < first_.size(); ++group)
    std::stable_sort(pieces_.begin() + static_cast<std::ptrdiff_t>(first_[group]),
                     pieces_.begin() + static_cast<std::ptrdiff_t>(first_[group + 1]),
                     [](const Piece& a, const Piece& b) { return a.k.begin < b.k.begin; });
}

std::span<const Piece> Schedule::pieces(index_t group) const {
  const auto g = static_cast<std::size_t>(group);
  return std::span(pieces_).subspan(first_[g], first_[g + 1] - first_[g]);
}

std::vector<index_t> Schedule::runs(index_t size) const {
  struct Run {
    index_t first, work;
  };
  std::vector<Run> runs;
  for (index_t first = 0; first < groups(); first += size) {
    index_t work = 0;  // keys spanned: what it costs, since a register tile costs the same full or not
    for (index_t group = first; group < std::min(first + size, groups()); ++group)
      for (const Piece& piece : pieces(group)) work += piece.k.count();
    if (work > 0) runs.push_back({first, work});
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.work > b.work; });
  std::vector<index_t> order;
  order.reserve(runs.size());
  for (const Run& run : runs) order.push_back(run.first);
  return order;
}

}  // namespace ringattn::cpu
