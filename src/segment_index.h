// Which segments of which ranks hold a range of positions.
#pragma once
#include <span>
#include <vector>

#include "src/cut.h"

namespace ringattn {

struct OwnedSegment {
  LocalSegment local;
  int owner = 0;
};

// Segments of stride 1 do not interleave, so in the order of their positions those that meet a range are
// neighbours, found by two binary searches. Segments of a larger stride are kept apart, to be tried one by
// one.
class SegmentIndex {
 public:
  explicit SegmentIndex(const Layout& layout);
  // All segments of stride 1, by position.
  std::span<const OwnedSegment> sorted() const { return sorted_; }
  // Those that hold a position of the range: sorted()[result.begin .. result.end).
  Range meeting(const Range& positions) const;
  std::span<const OwnedSegment> strided() const { return strided_; }

 private:
  std::vector<OwnedSegment> sorted_, strided_;
};

}  // namespace ringattn
