#include <algorithm>
#include <bit>

#include "kernels/cpu/few.h"

namespace ringattn::cpu {
namespace {

// What a lane of a group sees, by its pieces, which are disjoint.
void add_keys(std::span<const Piece> pieces, int lane, std::vector<Range>& keys) {
  for (const Piece& piece : pieces) {
    if (lane < piece.lane_begin || lane >= piece.lane_end) continue;
    const Range seen{std::max(piece.k.begin, lane + piece.lo), std::min(piece.k.end, lane + piece.hi + 1)};
    if (!seen.empty()) keys.push_back(seen);
  }
  std::ranges::sort(keys, {}, &Range::begin);
  std::size_t count = 0;
  for (const Range& range : keys) {
    if (count > 0 && keys[count - 1].end == range.begin)
      keys[count - 1].end = range.end;
    else
      keys[count++] = range;
  }
  keys.resize(count);
}

}  // namespace

index_t few_limit(const Target& target, DType dtype) {
  return dtype == DType::bf16 && target.pairs ? kFewPairRows : kFewRows;
}

std::optional<std::vector<FewKeys>> few_rows(const Schedule& schedule, index_t q_rows, index_t limit) {
  std::vector<FewKeys> rows;
  for (index_t group = 0; group < schedule.groups(); ++group) {
    const std::span<const Piece> pieces = schedule.pieces(group);
    std::uint64_t lanes = 0;
    for (const Piece& piece : pieces)
      lanes |= (std::uint64_t{1} << piece.lane_end) - (std::uint64_t{1} << piece.lane_begin);
    const index_t real = std::min<index_t>(q_rows - group * kGroup, kGroup);
    lanes &= (std::uint64_t{1} << real) - 1;
    if (static_cast<index_t>(rows.size()) + std::popcount(lanes) > limit) return {};
    for (; lanes != 0; lanes &= lanes - 1) {
      FewKeys row{.group = group, .lane = std::countr_zero(lanes), .keys = {}};
      add_keys(pieces, row.lane, row.keys);
      if (!row.keys.empty()) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace ringattn::cpu
