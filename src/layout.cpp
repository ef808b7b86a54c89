#include "src/layout.h"

#include <algorithm>
#include <limits>

#include "src/coverage.h"
#include "src/refuse.h"

namespace ringattn {
namespace {

using Shards = std::vector<std::vector<Segment>>;

// Chunk i of `chunks` nearly equal ones; the first seqlen % chunks have one row more. Written without
// i * seqlen, which would overflow. Example: 7 rows in 4 chunks start at 0, 2, 4, 6.
Segment chunk(index_t seqlen, index_t chunks, index_t i) {
  const index_t size = seqlen / chunks, longer = seqlen % chunks;
  return {.begin = i * size + std::min(i, longer), .count = size + (i < longer ? 1 : 0)};
}

std::vector<Segment> shard(LayoutKind kind, index_t seqlen, index_t ranks, index_t rank) {
  switch (kind) {
    case LayoutKind::contiguous:
      return {chunk(seqlen, ranks, rank)};
    case LayoutKind::zigzag:
      return {chunk(seqlen, 2 * ranks, rank), chunk(seqlen, 2 * ranks, 2 * ranks - 1 - rank)};
    case LayoutKind::striped:
      return {{.begin = rank, .count = (seqlen - rank + ranks - 1) / ranks, .stride = ranks}};
    case LayoutKind::custom:
      break;
  }
  refuse("layout", "custom", "a custom layout is made by Layout::custom from its segments");
}

void check_segment(const Segment& s, index_t seqlen, std::size_t rank, std::size_t index) {
  const auto refuse_segment = [&](const std::string& why) {
    throw UsageError("segment " + std::to_string(index) + " of rank " + std::to_string(rank) + " {begin " +
                     std::to_string(s.begin) + ", count " + std::to_string(s.count) + ", stride " +
                     std::to_string(s.stride) + "} " + why);
  };
  if (s.count < 0) refuse_segment("has a negative count");
  if (s.stride < 1 || s.stride > kMaxSeqlen) refuse_segment("has a stride outside [1, 2^58]");
  if (s.count == 0) return;
  if (s.begin < 0 || s.begin >= seqlen || s.count - 1 > (seqlen - 1 - s.begin) / s.stride) {
    refuse_segment("leaves [0, " + std::to_string(seqlen) + ")");
  }
}

}  // namespace

std::string_view name_of(LayoutKind k) {
  switch (k) {
    case LayoutKind::contiguous:
      return "contiguous";
    case LayoutKind::zigzag:
      return "zigzag";
    case LayoutKind::striped:
      return "striped";
    case LayoutKind::custom:
      return "custom";
  }
  return "invalid";
}

LayoutKind layout_from_name(std::string_view s) {
  for (const auto k : {LayoutKind::contiguous, LayoutKind::zigzag, LayoutKind::striped}) {
    if (s == name_of(k)) return k;
  }
  refuse("layout", quoted(s), "allowed are contiguous, zigzag and striped");
}

Layout::Layout(LayoutKind kind, index_t seqlen, const Shards& segments)
    : kind_(kind), seqlen_(seqlen), first_{0} {
  for (const auto& shard : segments) {
    for (const Segment& s : shard) {
      if (s.count <= 0) continue;
      // A segment that goes on where the one before it ended is the same segment: the last rank of a zigzag
      // holds its two chunks side by side.
      Segment* last = segments_.size() > first_.back() ? &segments_.back() : nullptr;
      if (last != nullptr && last->stride == s.stride && last->position(last->count) == s.begin) {
        last->count += s.count;
      } else {
        segments_.push_back(s);
      }
    }
    first_.push_back(segments_.size());
  }
}

Layout Layout::make(LayoutKind kind, index_t seqlen, int ranks) {
  require_between("seqlen", seqlen, 0, kMaxSeqlen);
  require_between("ranks", ranks, 1, std::numeric_limits<int>::max());
  Shards segments;
  segments.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) segments.push_back(shard(kind, seqlen, ranks, r));
  return Layout(kind, seqlen, segments);
}

Layout Layout::custom(index_t seqlen, const Shards& segments) {
  require_between("seqlen", seqlen, 0, kMaxSeqlen);
  require_between("ranks", static_cast<index_t>(segments.size()), 1, std::numeric_limits<int>::max());
  for (std::size_t rank = 0; rank < segments.size(); ++rank) {
    for (std::size_t i = 0; i < segments[rank].size(); ++i) {
      check_segment(segments[rank][i], seqlen, rank, i);
    }
  }
  Layout layout(LayoutKind::custom, seqlen, segments);
  require_each_position_once(layout);
  return layout;
}

std::span<const Segment> Layout::segments(int rank) const {
  require_between("rank", rank, 0, ranks() - 1);
  const std::size_t begin = first_[static_cast<std::size_t>(rank)];
  return std::span(segments_).subspan(begin, first_[static_cast<std::size_t>(rank) + 1] - begin);
}

index_t Layout::rows(int rank) const {
  index_t rows = 0;
  for (const Segment& s : segments(rank)) rows += s.count;
  return rows;
}

index_t Layout::max_rows() const {
  index_t most = 0;
  for (int r = 0; r < ranks(); ++r) most = std::max(most, rows(r));
  return most;
}

index_t Layout::position(int rank, index_t row) const {
  index_t left = row;
  for (const Segment& s : segments(rank)) {
    if (0 <= left && left < s.count) return s.position(left);
    left -= s.count;
  }
  refuse("row", std::to_string(row),
         "rank " + std::to_string(rank) + " has " + std::to_string(rows(rank)) + " rows");
}

std::vector<index_t> Layout::positions(int rank) const {
  std::vector<index_t> all;
  all.reserve(static_cast<std::size_t>(rows(rank)));
  for (const Segment& s : segments(rank)) {
    for (index_t t = 0; t < s.count; ++t) all.push_back(s.position(t));
  }
  return all;
}

}  // namespace ringattn
