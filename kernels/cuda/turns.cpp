#include "kernels/cuda/turns.h"

#include <algorithm>
#include <limits>

#include "src/error.h"

namespace ringattn::cuda {

namespace {

int number_of(const std::vector<TurnRun>& runs) {
  if (runs.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw UsageError("tiles: they visit blocks of queries in more than 2147483647 runs; use fewer tiles");
  return static_cast<int>(runs.size());
}

}  // namespace

TurnList turns_of(const Schedule& keys, index_t q_rows) {
  std::vector<int> visits(static_cast<std::size_t>((q_rows + kTurnRows - 1) / kTurnRows));
  TurnList list;
  list.first_runs.reserve(keys.groups.size() + 1);
  for (const Group& group : keys.groups) {
    list.first_runs.push_back(number_of(list.runs));
    for (index_t p = group.first_piece + group.pieces - 1; p >= group.first_piece; --p) {
      const Piece& piece = keys.pieces[static_cast<std::size_t>(p)];
      auto end = static_cast<int>(piece.end);
      for (int block = (end - 1) / kTurnRows; end > piece.begin; --block) {
        const int begin = std::max(block * kTurnRows, static_cast<int>(piece.begin));
        const int turn = visits[static_cast<std::size_t>(block)]++;
        if (end == piece.end || turn != list.runs.back().turn) list.runs.push_back({begin, end, turn});
        list.runs.back().begin = end = begin;
      }
    }
  }
  list.first_runs.push_back(number_of(list.runs));
  return list;
}

}  // namespace ringattn::cuda
