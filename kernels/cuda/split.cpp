#include "kernels/cuda/split.h"

#include <algorithm>

#include "kernels/cuda/device_error.h"

namespace ringattn::cuda {
namespace {

index_t quotient_up(index_t a, index_t b) { return (a + b - 1) / b; }

index_t steps_of(const Piece& piece) { return quotient_up(piece.end - piece.begin, kSplitColumns); }

std::vector<index_t> steps_of_groups(const Schedule& schedule) {
  std::vector<index_t> steps;
  for (const Group& group : schedule.groups) {
    index_t sum = 0;
    for (index_t p = 0; p < group.pieces; ++p)
      sum += steps_of(schedule.pieces[static_cast<std::size_t>(group.first_piece + p)]);
    steps.push_back(sum);
  }
  return steps;
}

// The fewest steps, from `least` on, that parts may have at most so that there are no more than `most` parts;
// 0 if the groups alone are more.
index_t steps_a_part(const std::vector<index_t>& steps, index_t least, index_t most) {
  if (static_cast<index_t>(steps.size()) > most) return 0;
  index_t low = least, high = std::max(least, *std::ranges::max_element(steps));
  while (low < high) {
    const index_t middle = low + (high - low) / 2;
    index_t parts = 0;
    for (const index_t group : steps) parts += quotient_up(group, middle);
    (parts <= most ? high : low) = parts <= most ? middle : middle + 1;
  }
  return low;
}

// Appends steps [begin, end) of a group as a part. Visibility is in columns of the block, so that a piece is
// cut by its ends alone.
void add_part(const Schedule& from, const Group& group, index_t begin, index_t end, index_t state_rows,
              Schedule& to) {
  const auto first_piece = static_cast<index_t>(to.pieces.size());
  index_t step = 0;  // of the group, at the begin of the piece
  for (index_t p = 0; p < group.pieces && step < end; ++p) {
    const Piece& piece = from.pieces[static_cast<std::size_t>(group.first_piece + p)];
    const index_t steps = steps_of(piece);
    if (step + steps > begin) {
      Piece cut = piece;
      cut.begin += std::max(begin - step, index_t{0}) * kSplitColumns;
      cut.end = std::min(cut.end, piece.begin + (end - step) * kSplitColumns);
      to.pieces.push_back(cut);
    }
    step += steps;
  }
  to.groups.push_back({.first_row = group.first_row,
                       .first_piece = first_piece,
                       .pieces = static_cast<index_t>(to.pieces.size()) - first_piece,
                       .first_state = static_cast<index_t>(to.groups.size()) * state_rows});
}

}  // namespace

SplitRule split_rule() {
  int device = 0, multiprocessors = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
             "number of multiprocessors");
  // Two blocks of chapter 2 fit by their registers. Where shared memory has room for one alone, as in chapter
  // 3, they come in two waves of half the length, which takes no longer.
  constexpr index_t kBlocksAMultiprocessor = 2;
  // Reset and merge cost some microseconds. 512 keys and values of 128 bf16 are 256 KiB, 10 us of one
  // multiprocessor's share of the bandwidth of an H100 (3.35 TB/s / 132). Estimated, not measured.
  constexpr index_t kColumns = 512;
  return {.blocks = kBlocksAMultiprocessor * multiprocessors, .columns = kColumns};
}

std::optional<Schedule> split(const Schedule& schedule, index_t blocks_a_group, index_t state_rows,
                              const SplitRule& rule) {
  if (schedule.groups.empty()) return {};
  const std::vector<index_t> steps = steps_of_groups(schedule);
  const index_t most =
      steps_a_part(steps, quotient_up(rule.columns, kSplitColumns), rule.blocks / blocks_a_group);
  if (most == 0 || most >= *std::ranges::max_element(steps)) return {};
  Schedule cut;
  for (std::size_t g = 0; g < schedule.groups.size(); ++g) {
    const Group& group = schedule.groups[g];
    const index_t parts = quotient_up(steps[g], most);
    cut.merges.push_back({.first_row = group.first_row,
                          .first_state = static_cast<index_t>(cut.groups.size()) * state_rows,
                          .parts = parts});
    for (index_t part = 0; part < parts; ++part)
      add_part(schedule, group, steps[g] * part / parts, steps[g] * (part + 1) / parts, state_rows, cut);
  }
  return cut;
}

}  // namespace ringattn::cuda
