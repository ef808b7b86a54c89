#include "kernels/cuda/schedule.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "kernels/check.h"

namespace ringattn::cuda {
namespace {

bool nothing(const Tile& tile) { return tile.q.empty() || tile.k.empty() || tile.band.lo > tile.band.hi; }

// Keys for rows and queries for columns: j - i within [lo, hi] is i - j within [-hi, -lo].
Tile transposed(const Tile& tile) {
  return {.q = tile.k, .k = tile.q, .band = {.lo = -tile.band.hi, .hi = -tile.band.lo}};
}

// May be empty (begin >= end): a band need not reach every group of its tile.
Piece cut(const Tile& tile, index_t row0, index_t group_rows) {
  const Range rows{std::max(tile.q.begin, row0), std::min(tile.q.end, row0 + group_rows)};
  // Sums of a band and a row cannot overflow: |band| <= 2^60 and rows are below 2^62.
  return {.begin = std::max(tile.k.begin, rows.begin + tile.band.lo),
          .end = std::min(tile.k.end, rows.end + tile.band.hi),
          .lo = tile.band.lo + row0,
          .hi = tile.band.hi + row0,
          .row_begin = static_cast<int>(rows.begin - row0),
          .row_end = static_cast<int>(rows.end - row0)};
}

Schedule schedule_of(const std::vector<Tile>& tiles, index_t rows, index_t group_rows) {
  const auto groups = static_cast<std::size_t>((rows + group_rows - 1) / group_rows);
  std::vector<std::vector<Piece>> by_group(groups);
  for (const Tile& tile : tiles) {
    for (index_t group = tile.q.begin / group_rows; group * group_rows < tile.q.end; ++group) {
      const Piece piece = cut(tile, group * group_rows, group_rows);
      if (piece.begin < piece.end) by_group[static_cast<std::size_t>(group)].push_back(piece);
    }
  }
  Schedule schedule;
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<Piece>& pieces = by_group[group];
    if (pieces.empty()) continue;
    // By first column, and then by all else: neither the order of a row's columns nor where a split cuts
    // depends on the order of the tiles.
    std::ranges::sort(pieces, {}, [](const Piece& piece) {
      return std::tuple(piece.begin, piece.end, piece.row_begin, piece.row_end, piece.lo, piece.hi);
    });
    schedule.groups.push_back({.first_row = static_cast<index_t>(group) * group_rows,
                               .first_piece = static_cast<index_t>(schedule.pieces.size()),
                               .pieces = static_cast<index_t>(pieces.size()),
                               .first_state = static_cast<index_t>(group) * group_rows});
    schedule.pieces.insert(schedule.pieces.end(), pieces.begin(), pieces.end());
  }
  // Longest first, so that the last blocks of a launch are short ones.
  const auto columns = [&](const Group& group) {
    const auto first = schedule.pieces.begin() + group.first_piece;
    return std::accumulate(first, first + group.pieces, index_t{0},
                           [](index_t sum, const Piece& piece) { return sum + piece.end - piece.begin; });
  };
  std::ranges::stable_sort(schedule.groups, std::ranges::greater{}, columns);
  return schedule;
}

}  // namespace

Schedule query_schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows, int group_rows) {
  std::vector<Tile> visible;
  for (const Tile& tile : tiles) {
    check_tile(tile, q_rows, k_rows);
    if (!nothing(tile)) visible.push_back(tile);
  }
  return schedule_of(visible, q_rows, group_rows);
}

std::vector<index_t> rows_beside(const Schedule& schedule, index_t q_rows, int group_rows) {
  std::vector<bool> there(static_cast<std::size_t>((q_rows + group_rows - 1) / group_rows));
  for (const Group& group : schedule.groups)
    there[static_cast<std::size_t>(group.first_row / group_rows)] = true;
  std::vector<index_t> rows;
  for (std::size_t group = 0; group < there.size(); ++group)
    if (!there[group]) rows.push_back(static_cast<index_t>(group) * group_rows);
  return rows;
}

Schedule key_schedule(std::span<const Tile> tiles, index_t q_rows, index_t k_rows, int group_rows) {
  std::vector<Tile> visible;
  for (const Tile& tile : tiles) {
    check_tile(tile, q_rows, k_rows);
    if (!nothing(tile)) visible.push_back(transposed(tile));
  }
  return schedule_of(visible, k_rows, group_rows);
}

}  // namespace ringattn::cuda
