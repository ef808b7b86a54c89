#include "launch/checked_rows.h"

#include <algorithm>

namespace ringattn::launch {
namespace {

// Any fixed scrambling will do: the places should only not line up with chunks, strides or tiles.
index_t scrambled(index_t n) {
  std::uint64_t x = (static_cast<std::uint64_t>(n) + 1) * 0x9E3779B97F4A7C15u;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9u;
  return static_cast<index_t>((x ^ (x >> 32)) >> 1);
}

// floor(whole * part / parts) without overflow for whole up to 2^62 and parts up to 2^30.
index_t fraction(index_t whole, index_t part, index_t parts) {
  return whole / parts * part + whole % parts * part / parts;
}

}  // namespace

std::vector<QueryRow> sample_rows(index_t batch, index_t seqlen_q, index_t count) {
  const index_t total = batch * seqlen_q;
  count = std::min(count, total);
  std::vector<QueryRow> rows;
  const auto add = [&](index_t flat) {
    rows.push_back({.batch = flat / seqlen_q, .position = flat % seqlen_q});
  };
  if (count <= 0) return rows;
  if (count == total) {
    for (index_t flat = 0; flat < total; ++flat) add(flat);
    return rows;
  }
  // The first row sees one key and the last one sees all of them under a causal mask: both ends are worth a
  // look.
  if (count > 1) add(0);
  for (index_t s = 0; s + 2 < count; ++s) {
    const index_t begin = 1 + fraction(total - 2, s, count - 2),
                  end = 1 + fraction(total - 2, s + 1, count - 2);
    add(begin + scrambled(s) % (end - begin));
  }
  add(total - 1);
  return rows;
}

std::vector<Range> visible_keys(const Mask& mask, index_t query) {
  std::vector<Range> keys;
  for (const Tile& tile : mask.tiles()) {
    if (query < tile.q.begin || query >= tile.q.end) continue;
    const Range seen{.begin = std::max(tile.k.begin, query + tile.band.lo),
                     .end = std::min(tile.k.end, query + tile.band.hi + 1)};
    if (!seen.empty()) keys.push_back(seen);
  }
  std::sort(keys.begin(), keys.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return keys;
}

std::optional<index_t> local_row(const Layout& layout, int rank, index_t position) {
  index_t row = 0;
  for (const Segment& segment : layout.segments(rank)) {
    const index_t ahead = position - segment.begin;
    if (ahead >= 0 && ahead % segment.stride == 0 && ahead / segment.stride < segment.count) {
      return row + ahead / segment.stride;
    }
    row += segment.count;
  }
  return std::nullopt;
}

CheckPlan plan_check(const Problem& problem, index_t rows, double budget) {
  const HeadShape heads = problem.heads();
  CheckPlan plan{.rows = sample_rows(heads.batch, problem.seqlen_q(), rows)};
  double keys = 0;
  for (const QueryRow& row : plan.rows) {
    for (const Range& range : visible_keys(problem.mask, row.position))
      keys += static_cast<double>(range.count());
  }
  const double flops_a_head = 2 * keys * static_cast<double>(heads.head_dim + heads.head_dim_v);
  // A sample in which nothing is visible costs nothing.
  const double affordable = flops_a_head > 0 ? budget / flops_a_head : static_cast<double>(heads.num_heads);
  plan.heads_per_row =
      static_cast<index_t>(std::clamp(affordable, 1.0, static_cast<double>(heads.num_heads)));
  plan.flops = flops_a_head * static_cast<double>(plan.heads_per_row);
  return plan;
}

std::vector<index_t> spread_heads(index_t count, std::size_t sample, index_t num_heads) {
  std::vector<index_t> heads;
  for (index_t i = 0; i < count; ++i) {
    heads.push_back((i * num_heads / count + static_cast<index_t>(sample)) % num_heads);
  }
  return heads;
}

std::vector<index_t> checked_heads(const CheckPlan& plan, std::size_t row, index_t num_heads) {
  return spread_heads(plan.heads_per_row, row, num_heads);
}

std::chrono::milliseconds check_patience(double flops, std::chrono::milliseconds patience) {
  constexpr double kSlowest = 1e8, kEvaluations = 2;
  return patience +
         std::chrono::milliseconds(static_cast<std::int64_t>(flops * kEvaluations / kSlowest * 1000));
}

}  // namespace ringattn::launch
