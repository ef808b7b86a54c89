#include "src/segment_index.h"

#include <algorithm>

namespace ringattn {
namespace {

index_t begin_of(const OwnedSegment& s) { return s.local.segment.begin; }
index_t end_of(const OwnedSegment& s) { return s.local.segment.begin + s.local.segment.count; }

}  // namespace

SegmentIndex::SegmentIndex(const Layout& layout) {
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const LocalSegment& s : local_segments(layout, r)) {
      (s.segment.stride == 1 ? sorted_ : strided_).push_back({s, r});
    }
  }
  std::sort(sorted_.begin(), sorted_.end(),
            [](const OwnedSegment& a, const OwnedSegment& b) { return begin_of(a) < begin_of(b); });
}

Range SegmentIndex::meeting(const Range& positions) const {
  const auto first = std::partition_point(
      sorted_.begin(), sorted_.end(), [&](const OwnedSegment& s) { return end_of(s) <= positions.begin; });
  const auto last = std::partition_point(first, sorted_.end(),
                                         [&](const OwnedSegment& s) { return begin_of(s) < positions.end; });
  return {first - sorted_.begin(), last - sorted_.begin()};
}

}  // namespace ringattn
