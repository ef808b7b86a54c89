#include "src/cut.h"

#include <algorithm>

namespace ringattn {
namespace {

Range rows_of(const LocalSegment& s) { return {s.row, s.row + s.segment.count}; }

index_t last_position(const Segment& s) { return s.position(s.count - 1); }

void append(const Tile& tile, std::vector<Tile>& tiles) {
  const Tile t = normalized(tile);
  if (!t.q.empty()) tiles.push_back(t);
}

// Local row i of the queries stands at q.begin + stride * (i - q.row), row j of the keys at k.begin + stride
// * (j - k.row), so lo <= key - query <= hi becomes a band in i and j: divide by the stride, rounding
// inwards, and shift by the first rows.
//
// Worked example: 10 positions striped over 2 ranks, causal (hi = 0). Rank 0 holds queries 0 2 4 6 8, rank 1
// keys 1 3 5 7 9, so hi = floor((0 + 0 - 1) / 2) = -1: query row 1 (position 2) sees key row 0 (position 1)
// and no later one. The other way round, rank 1's queries and rank 0's keys: hi = floor((0 + 1 - 0) / 2) = 0.
Band local_band(const Band& band, const LocalSegment& q, const LocalSegment& k) {
  const index_t stride = q.segment.stride;
  const index_t apart = q.segment.begin - k.segment.begin, shift = k.row - q.row;
  return {ceil_div(band.lo + apart, stride) + shift, floor_div(band.hi + apart, stride) + shift};
}

bool sees_everything(const Band& band, const Segment& q, const Segment& k) {
  return band.lo <= k.begin - last_position(q) && last_position(k) - q.begin <= band.hi;
}

// One tile for each query row: the keys it sees are neighbours among the rows of the key segment.
void cut_by_queries(const Band& band, const LocalSegment& q, const LocalSegment& k,
                    std::vector<Tile>& tiles) {
  for (index_t t = 0; t < q.segment.count; ++t) {
    const index_t query = q.segment.position(t), row = q.row + t;
    const LocalSegment seen = clipped(k, {query + band.lo, query + band.hi + 1});
    append({.q = {row, row + 1}, .k = rows_of(seen), .band = {}}, tiles);
  }
}

void cut_by_keys(const Band& band, const LocalSegment& q, const LocalSegment& k, std::vector<Tile>& tiles) {
  for (index_t t = 0; t < k.segment.count; ++t) {
    const index_t key = k.segment.position(t), row = k.row + t;
    const LocalSegment seeing = clipped(q, {key - band.hi, key - band.lo + 1});
    append({.q = rows_of(seeing), .k = {row, row + 1}, .band = {}}, tiles);
  }
}

}  // namespace

std::vector<LocalSegment> local_segments(const Layout& layout, int rank) {
  std::vector<LocalSegment> local;
  index_t row = 0;
  for (const Segment& s : layout.segments(rank)) {
    local.push_back({s, row});
    row += s.count;
  }
  return local;
}

LocalSegment clipped(const LocalSegment& s, const Range& positions) {
  const auto& [begin, count, stride] = s.segment;
  const index_t first = std::clamp(ceil_div(positions.begin - begin, stride), index_t{0}, count);
  const index_t last = std::clamp(ceil_div(positions.end - begin, stride), first, count);
  return {{begin + first * stride, last - first, stride}, s.row + first};
}

void cut(const Tile& mask_tile, const LocalSegment& q_segment, const LocalSegment& k_segment,
         std::vector<Tile>& tiles) {
  const LocalSegment q = clipped(q_segment, mask_tile.q), k = clipped(k_segment, mask_tile.k);
  if (q.segment.count == 0 || k.segment.count == 0) return;
  const Tile rectangle{.q = rows_of(q), .k = rows_of(k), .band = {}};
  if (q.segment.stride == k.segment.stride) {
    append({rectangle.q, rectangle.k, local_band(mask_tile.band, q, k)}, tiles);
  } else if (sees_everything(mask_tile.band, q.segment, k.segment)) {
    append(rectangle, tiles);
  } else if (q.segment.count <= k.segment.count) {
    cut_by_queries(mask_tile.band, q, k, tiles);
  } else {
    cut_by_keys(mask_tile.band, q, k, tiles);
  }
}

}  // namespace ringattn
