#include <algorithm>

#include "launch/report.h"

namespace ringattn::launch {

// None if some rank has no figure: a mean over the others would flatter the whole.
std::optional<double> read_bandwidth_of(const Report& report) {
  double sum = 0;
  for (const RankFigures& rank : report.ranks) {
    if (!(rank.read_bandwidth > 0)) return std::nullopt;
    sum += rank.read_bandwidth;
  }
  return sum / static_cast<double>(report.ranks.size());
}

std::optional<Roofline> roofline_of(const Report& report) {
  const auto peak = fma_peak_of(report), bandwidth = read_bandwidth_of(report);
  if (report.mode == Mode::comm_only || !peak || !bandwidth) return std::nullopt;
  const auto ranks = static_cast<double>(report.ranks.size());
  Roofline roofline{.flops = flops_of(report)};
  for (const RankFigures& rank : report.ranks) roofline.bytes += rank.bytes_to_move;
  roofline.compute_seconds = roofline.flops / ranks / *peak;
  roofline.memory_seconds = roofline.bytes / ranks / *bandwidth;
  roofline.over_floor = report.seconds.median / std::max(roofline.compute_seconds, roofline.memory_seconds);
  return roofline;
}

}  // namespace ringattn::launch
