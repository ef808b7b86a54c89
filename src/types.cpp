#include "src/types.h"

#include <algorithm>
#include <string>

#include "src/refuse.h"

namespace ringattn {
namespace {

__extension__ typedef __int128 wide_t;

// Sum over x < y of x clamped to [0, top]: a triangle up to top, then a slope of top a step.
wide_t sum_of_clamped(wide_t y, wide_t top) {
  if (y <= 0) return 0;
  if (y <= top) return y * (y - 1) / 2;
  return top * (top - 1) / 2 + (y - top) * top;
}

// Pairs of the rectangle with j - i <= bound: row i has clamp(i + bound + 1 - k.begin, 0, k.count()) of them,
// and that argument takes q.count() consecutive values.
wide_t pairs_up_to(const Range& q, const Range& k, index_t bound) {
  const wide_t first = static_cast<wide_t>(q.begin) + bound + 1 - k.begin;
  return sum_of_clamped(first + q.count(), k.count()) - sum_of_clamped(first, k.count());
}

// The band cut to the differences that the rectangle holds; lo > hi if it holds none of them.
Band reachable(const Tile& t) {
  return {std::max(t.band.lo, t.k.begin - (t.q.end - 1)), std::min(t.band.hi, t.k.end - 1 - t.q.begin)};
}

}  // namespace

std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
  }
  return "invalid";
}

DType dtype_from_name(std::string_view s) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
    if (s == name_of(t)) return t;
  }
  refuse("dtype", quoted(s), "allowed are f32, bf16 and f16");
}

std::string_view name_of(MemorySpace space) { return space == MemorySpace::host ? "host" : "cuda"; }

index_t visible_pairs(const Tile& t) {
  if (t.q.empty() || t.k.empty()) return 0;
  const Band band = reachable(t);
  if (band.lo > band.hi) return 0;
  const wide_t pairs = pairs_up_to(t.q, t.k, band.hi) - pairs_up_to(t.q, t.k, band.lo - 1);
  if (pairs > std::numeric_limits<index_t>::max()) {
    throw UsageError("a tile of " + std::to_string(t.q.count()) + " queries and " +
                     std::to_string(t.k.count()) + " keys has 2^63 visible pairs or more");
  }
  return static_cast<index_t>(pairs);
}

Tile normalized(const Tile& t) {
  if (t.q.empty() || t.k.empty()) return Tile{{}, {}, {0, 0}};
  const Band band = reachable(t);
  if (band.lo > band.hi) return Tile{{}, {}, {0, 0}};
  // Every diagonal of the band now meets the rectangle, so what is left of each range is exactly the rows and
  // the keys that take part in a pair, and the band runs from the smallest to the largest difference: all of
  // it follows from the set of pairs alone. Example: q [0,5), k [2,4), band {-9, 0} -> q [2,5), {-2, 0}.
  return Tile{
      .q = {std::max(t.q.begin, t.k.begin - band.hi), std::min(t.q.end, t.k.end - band.lo)},
      .k = {std::max(t.k.begin, t.q.begin + band.lo), std::min(t.k.end, t.q.end + band.hi)},
      .band = band,
  };
}

}  // namespace ringattn
