// Which global positions each rank holds. The only place where contiguous, zigzag and striped exist.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/types.h"

namespace ringattn {

// `count` rows of a shard: row t of the segment is global position begin + t * stride.
struct Segment {
  index_t begin = 0, count = 0, stride = 1;
  constexpr index_t position(index_t t) const { return begin + t * stride; }
  friend bool operator==(const Segment&, const Segment&) = default;
};

enum class LayoutKind : std::uint8_t { contiguous, zigzag, striped, custom };
std::string_view name_of(LayoutKind k);
LayoutKind layout_from_name(std::string_view s);  // the three named ones; throws UsageError

// One sequence cut into shards, one per rank. A rank's local rows are its segments one after the other.
// Up to 2^58 positions. Nothing must divide: shards differ by at most one chunk, a shard may be empty,
// nothing is padded.
class Layout {
 public:
  // contiguous: rank r holds chunk r of P; zigzag: chunks r and 2P-1-r of 2P; striped: r, r+P, r+2P, ...
  static Layout make(LayoutKind kind, index_t seqlen, int ranks);
  // The caller's segments, one list a rank. Throws UsageError naming the first position that is not held
  // exactly once, or the rank and segment that leaves [0, seqlen).
  static Layout custom(index_t seqlen, const std::vector<std::vector<Segment>>& segments);

  LayoutKind kind() const { return kind_; }
  int ranks() const { return static_cast<int>(first_.size()) - 1; }
  index_t seqlen() const { return seqlen_; }
  // In the order of the local rows; none empty, and one that goes on where the one before it ended is joined
  // to it (the two chunks of the last zigzag rank).
  std::span<const Segment> segments(int rank) const;
  index_t rows(int rank) const;                    // rows of the rank's shard
  index_t max_rows() const;                        // of the largest shard
  index_t position(int rank, index_t row) const;   // global position of a local row
  std::vector<index_t> positions(int rank) const;  // of every local row

 private:
  Layout(LayoutKind kind, index_t seqlen, const std::vector<std::vector<Segment>>& segments);
  LayoutKind kind_;
  index_t seqlen_;
  std::vector<Segment> segments_;   // of all ranks, in rank order
  std::vector<std::size_t> first_;  // rank r owns segments_[first_[r] .. first_[r+1])
};

// The layouts of the query and of the key/value sequence, over the same ranks.
struct Sharding {
  Layout q, k;
  static Sharding make(LayoutKind kind, index_t seqlen_q, index_t seqlen_k, int ranks) {
    return {Layout::make(kind, seqlen_q, ranks), Layout::make(kind, seqlen_k, ranks)};
  }
  int ranks() const { return q.ranks(); }
};

}  // namespace ringattn
