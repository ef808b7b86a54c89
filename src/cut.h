// The geometry of planning: a mask tile in global positions, cut to one query segment and one key segment,
// becomes tiles in local rows.
#pragma once
#include <vector>

#include "src/layout.h"

namespace ringattn {

constexpr index_t floor_div(index_t a, index_t b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0
constexpr index_t ceil_div(index_t a, index_t b) { return a / b + (a % b > 0 ? 1 : 0); }   // b > 0

// A segment, or a part of one, and the local row of its first position.
struct LocalSegment {
  Segment segment;
  index_t row = 0;
};
std::vector<LocalSegment> local_segments(const Layout& layout, int rank);

// The rows whose positions lie in the range; count 0 if none does.
LocalSegment clipped(const LocalSegment& s, const Range& positions);

// Appends the tiles, in local rows, of what the queries of one segment see of the keys of another one through
// a mask tile. One tile if the strides are equal or the band cuts nothing off; otherwise no band fits and it
// is one tile for each row of the side with fewer rows: exact, but slow to compute with.
void cut(const Tile& mask_tile, const LocalSegment& q, const LocalSegment& k, std::vector<Tile>& tiles);

}  // namespace ringattn
