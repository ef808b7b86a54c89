#include "src/coverage.h"

#include <queue>
#include <string>
#include <vector>

#include "src/error.h"

namespace ringattn {
namespace {

// What is left of a segment, ordered so that a priority queue gives the lowest position first.
struct Rest {
  Segment segment;
  int rank = 0;
  bool operator<(const Rest& other) const { return segment.begin > other.segment.begin; }
};

std::priority_queue<Rest> all_segments(const Layout& layout) {
  std::vector<Rest> rests;
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const Segment& s : layout.segments(r)) rests.push_back({s, r});
  }
  return std::priority_queue<Rest>({}, std::move(rests));
}

// Positions of a segment that follow one another without a gap.
index_t run_length(const Segment& s) { return s.stride == 1 ? s.count : 1; }

}  // namespace

void require_each_position_once(const Layout& layout) {
  // A sweep from position 0: `next` is the first position not reached yet and `holder` holds those before it.
  // What the queue gives next starts no lower than the run before it, so a start below `next` lies in that
  // run.
  auto rests = all_segments(layout);
  index_t next = 0;
  int holder = 0;
  while (!rests.empty()) {
    const Rest rest = rests.top();
    rests.pop();
    if (rest.segment.begin > next) break;
    if (rest.segment.begin < next) {
      throw UsageError("layout: position " + std::to_string(rest.segment.begin) + " is held twice, by rank " +
                       std::to_string(holder) + " and rank " + std::to_string(rest.rank));
    }
    const index_t run = run_length(rest.segment);
    next += run;
    holder = rest.rank;
    if (run < rest.segment.count) {
      const Segment& s = rest.segment;
      rests.push({{s.position(run), s.count - run, s.stride}, rest.rank});
    }
  }
  if (next < layout.seqlen()) {
    throw UsageError("layout: position " + std::to_string(next) + " of [0, " +
                     std::to_string(layout.seqlen()) + ") is held by no rank");
  }
}

}  // namespace ringattn
