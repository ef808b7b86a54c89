#include "launch/plan_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launch/build_info.h"
#include "launch/report.h"
#include "launch/units.h"

namespace ringattn::launch {
namespace {

using Json = nlohmann::ordered_json;

// More ranks or hops than this are summed up instead of listed.
constexpr std::size_t kMostLines = 64;

struct Summary {
  double min = 0, mean = 0, max = 0;
};

// One figure over the planned ranks.
template <class Figure>
Summary summary_of(const std::vector<PlannedRank>& ranks, Figure&& figure) {
  Summary s{.min = figure(ranks.at(0)), .mean = 0, .max = figure(ranks.at(0))};
  for (const PlannedRank& rank : ranks) {
    const double value = figure(rank);
    s.min = std::min(s.min, value);
    s.max = std::max(s.max, value);
    s.mean += value / static_cast<double>(ranks.size());
  }
  return s;
}

constexpr auto kPairs = [](const PlannedRank& r) { return static_cast<double>(r.pairs); };
constexpr auto kTiles = [](const PlannedRank& r) { return static_cast<double>(r.tiles); };

// A figure of one of the two passes.
using PassOf = PlannedPass PlannedRank::*;
auto flops(PassOf pass) {
  return [=](const PlannedRank& r) { return (r.*pass).flops; };
}
auto bytes(PassOf pass) {
  return [=](const PlannedRank& r) { return static_cast<double>((r.*pass).traffic.bytes_sent); };
}
auto messages(PassOf pass) {
  return [=](const PlannedRank& r) { return static_cast<double>((r.*pass).traffic.messages_sent); };
}
auto workspace_bytes(PassOf pass) {
  return [=](const PlannedRank& r) { return (r.*pass).workspace_bytes; };
}
auto tensor_bytes(PassOf pass) {
  return [=](const PlannedRank& r) { return (r.*pass).tensor_bytes; };
}

// "mean (min .. max)", or the one figure that all ranks share.
template <class Figure, class Text>
std::string summary_line(const PlanReport& report, Figure&& figure, Text&& text) {
  const Summary s = summary_of(report.survey.ranks, figure);
  if (s.min == s.max) return text(s.min);
  return text(s.mean) + " (" + text(s.min) + " .. " + text(s.max) + ")";
}

// Workspace and tensors of backward are with forward's, which it needs.
std::string pass_lines(const PlanReport& report, const char* name, PassOf pass) {
  return "  " + std::string(name) + "   " + summary_line(report, flops(pass), count_text) + " FLOP; sent " +
         summary_line(report, bytes(pass), bytes_text) + " in " +
         summary_line(report, messages(pass), count_text) + " messages; " +
         summary_line(report, workspace_bytes(pass), bytes_text) + " workspace, " +
         summary_line(report, tensor_bytes(pass), bytes_text) + " tensors\n";
}

std::string balance_text(const PlanReport& report) {
  if (!report.survey.balance) return "not computed: " + report.survey.incomplete;
  char text[64];
  std::snprintf(text, sizeof text, "%.4f (mean pairs over the critical path)",
                report.survey.balance->value());
  return text;
}

std::string transfer_text(const PlanReport& report, const Estimate& e) {
  if (!report.machine.has_link()) return "transfers not estimated, no --link-gbps";
  const double gbps = report.machine.link_gbps;
  return "transfers " + seconds_text(e.transfer_seconds) + " at " +
         (gbps > 0 ? number_text(gbps) + " Gbit/s" : "unlimited bandwidth") + " + " +
         number_text(report.machine.link_latency_us) + " us";
}

// An estimate is worth as much as its assumptions, so they are part of the sentence.
std::string estimate_text(const PlanReport& report) {
  const Estimate e = estimate(*report.problem, report.survey.hops, report.machine, report.backend);
  const std::string transfers = transfer_text(report, e);
  if (!(report.fma_peak > 0)) return "compute not estimated, " + report.peak_source + "; " + transfers;
  const std::string text = seconds_text(e.seconds) + ": compute " + seconds_text(e.compute_seconds) + " at " +
                           rate_text(report.machine.flops_per_second) + "FLOP/s a rank (80% of the " +
                           report.product + " peak of " + report.peak_source + ")";
  if (!report.machine.has_link()) return text + "; " + transfers;
  return text + ", " + transfers + ", hidden where a hop is long enough";
}

void list_ranks(std::ostringstream& text, const PlanReport& report) {
  text << "  rank  q rows  k rows  tiles  pairs  bytes sent  messages  workspace  backward: bytes sent  "
          "messages"
          "  workspace\n";
  for (const PlannedRank& r : report.survey.ranks) {
    text << "  " << r.rank << "  " << r.q_rows << "  " << r.k_rows << "  " << r.tiles << "  " << r.pairs
         << "  " << r.forward.traffic.bytes_sent << "  " << r.forward.traffic.messages_sent << "  "
         << bytes_text(r.forward.workspace_bytes) << "  " << r.backward.traffic.bytes_sent << "  "
         << r.backward.traffic.messages_sent << "  " << bytes_text(r.backward.workspace_bytes) << '\n';
  }
}

// Half-open ranges, like Range; a side of the band without a limit says so.
std::string tile_text(const Tile& tile) {
  const auto bound = [](index_t n) {
    return std::abs(n) >= kUnbounded ? std::string("none") : std::to_string(n);
  };
  return "q [" + std::to_string(tile.q.begin) + ", " + std::to_string(tile.q.end) + ") k [" +
         std::to_string(tile.k.begin) + ", " + std::to_string(tile.k.end) + ") k - q from " +
         bound(tile.band.lo) + " to " + bound(tile.band.hi);
}

void list_hops(std::ostringstream& text, const Plan& plan, bool tiles) {
  // Whoever asks for tiles gets all of them; a plain list of hops stays readable.
  const std::size_t shown = tiles ? plan.hops().size() : std::min(plan.hops().size(), kMostLines);
  for (std::size_t s = 0; s < shown; ++s) {
    const Hop& hop = plan.hops()[s];
    text << "  hop " << s << ": keys of rank " << hop.owner << ", " << hop.k_rows << " rows, "
         << hop.tile_count << " tiles, " << hop.pairs << " pairs\n";
    if (!tiles) continue;
    for (const Tile& tile : plan.tiles(s)) text << "    " << tile_text(tile) << '\n';
  }
  if (shown < plan.hops().size()) text << "  ... " << plan.hops().size() - shown << " more hops\n";
}

Json summary_json(const Summary& s) { return {{"min", s.min}, {"mean", s.mean}, {"max", s.max}}; }

Json rank_json(const PlannedRank& r) {
  return {{"rank", r.rank},
          {"q_rows", r.q_rows},
          {"k_rows", r.k_rows},
          {"tiles", r.tiles},
          {"visible_pairs", r.pairs},
          {"flops", r.forward.flops},
          {"bytes_sent", r.forward.traffic.bytes_sent},
          {"messages_sent", r.forward.traffic.messages_sent},
          {"workspace_bytes", r.forward.workspace_bytes},
          {"tensor_bytes", r.forward.tensor_bytes},
          {"backward",
           {{"flops", r.backward.flops},
            {"bytes_sent", r.backward.traffic.bytes_sent},
            {"messages_sent", r.backward.traffic.messages_sent},
            {"workspace_bytes", r.backward.workspace_bytes},
            {"tensor_bytes", r.backward.tensor_bytes}}}};
}

// Over the planned ranks.
void add_pass(Json& json, const std::vector<PlannedRank>& ranks, PassOf pass) {
  json["flops_per_rank"] = summary_json(summary_of(ranks, flops(pass)));
  json["bytes_sent_per_rank"] = summary_json(summary_of(ranks, bytes(pass)));
  json["messages_sent_per_rank"] = summary_json(summary_of(ranks, messages(pass)));
  json["workspace_bytes_per_rank"] = summary_json(summary_of(ranks, workspace_bytes(pass)));
  json["tensor_bytes_per_rank"] = summary_json(summary_of(ranks, tensor_bytes(pass)));
}

// kUnbounded is written as it is: a number that no difference of positions reaches.
Json hop_json(const Plan& plan, std::size_t s, bool tiles) {
  const Hop& hop = plan.hops()[s];
  Json json{{"hop", s},
            {"owner", hop.owner},
            {"k_rows", hop.k_rows},
            {"tiles", hop.tile_count},
            {"visible_pairs", hop.pairs}};
  if (!tiles) return json;
  Json list = Json::array();
  for (const Tile& t : plan.tiles(s)) {
    list.push_back(
        {{"q", {t.q.begin, t.q.end}}, {"k", {t.k.begin, t.k.end}}, {"band", {t.band.lo, t.band.hi}}});
  }
  json["tile_list"] = std::move(list);
  return json;
}

Json estimate_json(const PlanReport& report) {
  const Estimate e = estimate(*report.problem, report.survey.hops, report.machine, report.backend);
  const bool link = report.machine.has_link();
  const auto with_peak = [&](auto value) { return report.fma_peak > 0 ? Json(value) : Json(nullptr); };
  return {{"seconds", with_peak(e.seconds)},
          {"compute_seconds", with_peak(e.compute_seconds)},
          {"transfer_seconds", link ? Json(e.transfer_seconds) : Json(nullptr)},
          {"assumed_tflops_per_rank", with_peak(report.machine.flops_per_second * 1e-12)},
          {"peak_instruction", with_peak(report.product)},
          {"peak_source", report.peak_source},
          {"fma_peak_tflops", with_peak(report.fma_peak * 1e-12)},
          {"link_gbps", report.machine.link_gbps > 0 ? Json(report.machine.link_gbps) : Json(nullptr)},
          {"link_latency_us", report.machine.link_latency_us}};
}

}  // namespace

std::string table_of(const PlanReport& report) {
  const RingSurvey& survey = report.survey;
  std::ostringstream text;
  text << "ringattn plan\n"
       << "  problem    " << problem_text(*report.problem) << '\n'
       << "  ring       " << report.total_ranks << " ranks x " << report.threads << " threads, layout "
       << name_of(report.layout) << ", " << survey.hops.size() << (survey.hops.size() == 1 ? " hop" : " hops")
       << ", " << name_of(report.backend) << " kernel\n  in all     " << report.problem->mask.visible_pairs()
       << " visible pairs a head, " << count_text(forward_flops(*report.problem)) << " FLOP forward, "
       << count_text(backward_flops(*report.problem)) << " backward\n"
       << "  per rank   mean (min .. max) of " << survey.ranks.size() << " ranks\n"
       << "  pairs      " << summary_line(report, kPairs, count_text) << ", in "
       << summary_line(report, kTiles, count_text) << " tiles\n"
       << pass_lines(report, "forward ", &PlannedRank::forward)
       << pass_lines(report, "backward", &PlannedRank::backward) << "  balance    " << balance_text(report)
       << '\n'
       << "  estimate   forward " << estimate_text(report) << '\n';
  if (report.detail) {
    list_hops(text, *report.detail, report.tiles);
  } else if (survey.ranks.size() <= kMostLines) {
    list_ranks(text, report);
  }
  return text.str();
}

std::string json_lines_of(const PlanReport& report) {
  const RingSurvey& survey = report.survey;
  Json json{{"subcommand", "plan"},
            {"version", kVersion},
            {"ranks", report.total_ranks},
            {"threads", report.threads}};
  add_problem(json, *report.problem);
  json["layout"] = name_of(report.layout);
  json["backend"] = name_of(report.backend);
  json["visible_pairs"] = report.problem->mask.visible_pairs();
  json["flops"] = forward_flops(*report.problem);
  json["hops"] = survey.hops.size();
  json["ranks_planned"] = survey.ranks.size();
  json["pairs_per_rank"] = summary_json(summary_of(survey.ranks, kPairs));
  json["tiles_per_rank"] = summary_json(summary_of(survey.ranks, kTiles));
  add_pass(json, survey.ranks, &PlannedRank::forward);
  json["backward"] = {{"flops", backward_flops(*report.problem)}};
  add_pass(json["backward"], survey.ranks, &PlannedRank::backward);
  json["balance"] = survey.balance ? Json(survey.balance->value()) : Json(nullptr);
  json["balance_not_computed"] = survey.balance ? Json(nullptr) : Json(survey.incomplete);
  json["estimate"] = estimate_json(report);
  // The first line is the ring; a reader that wants no more stops there.
  std::string lines = json.dump() + "\n";
  if (report.detail) {
    for (std::size_t s = 0; s < report.detail->hops().size(); ++s) {
      lines += hop_json(*report.detail, s, report.tiles).dump() + "\n";
    }
  } else if (survey.ranks.size() <= kMostLines) {
    for (const PlannedRank& rank : survey.ranks) lines += rank_json(rank).dump() + "\n";
  }
  return lines;
}

}  // namespace ringattn::launch
