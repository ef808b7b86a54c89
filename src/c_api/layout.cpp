#include "src/layout.h"

#include "src/c_api/convert.h"
#include "src/c_api/handles.h"

using namespace ringattn;
using namespace ringattn::c_api;

namespace {

Layout custom(int32_t ranks, int64_t seqlen, const ringattn_segment* segments, const char* segments_name,
              const size_t* counts, const char* counts_name) {
  std::vector<std::vector<Segment>> lists;
  std::size_t first = 0;
  for (const std::size_t count : array_of(counts, static_cast<std::size_t>(ranks), counts_name)) {
    std::vector<Segment>& list = lists.emplace_back();
    for (const ringattn_segment& s : array_of(segments, first + count, segments_name).subspan(first))
      list.push_back({.begin = s.begin, .count = s.count, .stride = s.stride});
    first += count;
  }
  return Layout::custom(seqlen, lists);
}

}  // namespace

ringattn_status ringattn_layout_create(ringattn_layout_kind kind, int64_t seqlen_q, int64_t seqlen_k,
                                       int32_t ranks, ringattn_layout** layout) {
  return create(layout, "layout",
                [&] { return Sharding::make(layout_kind_of(kind), seqlen_q, seqlen_k, ranks); });
}

ringattn_status ringattn_layout_create_custom(int32_t ranks, int64_t seqlen_q,
                                              const ringattn_segment* q_segments, const size_t* q_counts,
                                              int64_t seqlen_k, const ringattn_segment* k_segments,
                                              const size_t* k_counts, ringattn_layout** layout) {
  return create(layout, "layout", [&] {
    require_between("ranks", ranks, 1, std::numeric_limits<int32_t>::max());
    return Sharding{.q = custom(ranks, seqlen_q, q_segments, "q_segments", q_counts, "q_counts"),
                    .k = custom(ranks, seqlen_k, k_segments, "k_segments", k_counts, "k_counts")};
  });
}

ringattn_status ringattn_layout_ranks(const ringattn_layout* layout, int32_t* ranks) {
  return guarded([&] {
    const auto sharding = object_of(layout, "layout");
    require_pointer(ranks, "ranks");
    *ranks = sharding->ranks();
  });
}

ringattn_status ringattn_layout_rows(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                     int64_t* rows) {
  return guarded([&] {
    const auto sharding = object_of(layout, "layout");
    require_pointer(rows, "rows");
    *rows = side_of(*sharding, side).rows(rank);
  });
}

ringattn_status ringattn_layout_positions(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                          int64_t* positions, size_t capacity, size_t* count) {
  return guarded([&] {
    const auto sharding = object_of(layout, "layout");
    const Layout& own = side_of(*sharding, side);
    // Asked for the length alone, a shard of 2^50 rows must not be listed.
    const auto rows = static_cast<std::size_t>(own.rows(rank));
    give_list<int64_t>(rows, positions, "positions", capacity, count, [&] { return own.positions(rank); });
  });
}

ringattn_status ringattn_layout_segments(const ringattn_layout* layout, ringattn_side side, int32_t rank,
                                         ringattn_segment* segments, size_t capacity, size_t* count) {
  return guarded([&] {
    const auto sharding = object_of(layout, "layout");
    const auto own = side_of(*sharding, side).segments(rank);
    give_list<ringattn_segment>(own.size(), segments, "segments", capacity, count, [&] {
      std::vector<ringattn_segment> list;
      for (const Segment& s : own) list.push_back({.begin = s.begin, .count = s.count, .stride = s.stride});
      return list;
    });
  });
}

ringattn_status ringattn_layout_destroy(ringattn_layout* layout) { return destroy(layout, "layout"); }
