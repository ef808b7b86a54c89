#include "launch/report.h"

#include <algorithm>
#include <string>

#include "launch/build_info.h"
#include "launch/device_report.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

using Json = nlohmann::ordered_json;

// Null says "not measured", which 0 would not.
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json scaled(const std::optional<double>& value, double factor) {
  return value ? Json(*value * factor) : Json(nullptr);
}

// The rank that needs most decides whether a job fits.
template <class T>
T largest(const Report& report, T RankFigures::*figure) {
  T value{};
  for (const RankFigures& rank : report.ranks) value = std::max(value, rank.*figure);
  return value;
}

// A number that is not finite is null in JSON.
Json judgement_json(const Judgement& judgement) {
  return {{"max_abs_error", judgement.worst.error},
          {"rms_error", judgement.rms_error},
          {"bound", judgement.bound},
          {"naive_error", judgement.naive_error},
          {"naive_rms_error", judgement.naive_rms_error},
          {"passed", judgement.passed}};
}

// Null if the direction has no gradients.
Json gradients_json(const CheckOutcome& check) {
  if (!check.gradients) return nullptr;
  const GradientOutcome& gradients = *check.gradients;
  return {{"rows", check.rows},
          {"keys", gradients.keys},
          {"kv_heads_per_key", gradients.kv_heads_per_key},
          {"lse_and_delta", gradients.rows_recomputed ? "recomputed in float64" : "of the ring's forward"},
          {"dq", judgement_json(gradients.dq)},
          {"dk", judgement_json(gradients.dk)},
          {"dv", judgement_json(gradients.dv)}};
}

Json check_json(const Report& report) {
  if (!report.check)
    return {{"rows", 0},
            {"max_abs_error", nullptr},
            {"bound", nullptr},
            {"passed", nullptr},
            {"off", report.check_off}};
  const CheckOutcome& check = *report.check;
  return {{"rows", check.rows},
          {"heads_per_row", check.heads_per_row},
          {"max_abs_error", check.out.worst.error},
          {"rms_error", check.out.rms_error},
          {"bound", check.out.bound},
          {"naive_error", check.out.naive_error},
          {"naive_rms_error", check.out.naive_rms_error},
          {"passed", check.passed},
          {"lse", judgement_json(check.lse)},
          {"gradients", gradients_json(check)}};
}

Json gpu_json(const Report& report, std::size_t rank) {
  if (!report.device) return nullptr;
  const RankGpu& gpu = report.gpus.at(rank);
  return {{"host", gpu.host}, {"index", gpu.index}, {"name", gpu.name}, {"uuid", gpu.uuid}, {"pci", gpu.pci}};
}

Json rank_json(const Report& report, std::size_t rank) {
  const RankFigures& figures = report.ranks[rank];
  return {{"rank", rank},
          {"device", gpu_json(report, rank)},
          {"threads", figures.threads},
          {"cpus_allowed", figures.cpus_allowed},
          {"q_rows", figures.q_rows},
          {"k_rows", figures.k_rows},
          {"seconds", figures.seconds},
          {"forward_seconds", figures.forward_seconds},
          {"backward_seconds", figures.backward_seconds},
          {"compute_seconds", or_null(figures.compute_seconds)},
          {"wait_seconds", or_null(figures.wait_seconds)},
          {"bytes_sent", figures.bytes_sent},
          {"messages_sent", figures.messages_sent},
          {"workspace_bytes", figures.workspace_bytes},
          {"peak_rss_bytes", figures.peak_rss_bytes}};
}

// Fewest CPUs and most threads: the rank on which the two are farthest apart is the one to be seen.
void add_machine(Json& json, const Report& report) {
  int cpus = report.ranks.at(0).cpus_allowed;
  for (const RankFigures& rank : report.ranks) cpus = std::min(cpus, rank.cpus_allowed);
  json["ranks"] = report.ranks.size();
  json["threads"] = largest(report, &RankFigures::threads);
  json["cpus_allowed"] = cpus;
  json["oversubscribed"] = report.oversubscribed;
  json["isa"] = report.isa;
  json["communicator"] = report.communicator;
  json["communicator_why"] = report.communicator_why.empty() ? Json(nullptr) : Json(report.communicator_why);
  json["backend"] = report.backend;
  json["device"] = devices_json(report);
  json["clock"] = report.device ? "events on the device" : "host";
}

// One pass of two. Its share is of both passes' seconds, each of its slowest rank.
Json pass_json(const Report& report, Direction pass, double seconds) {
  const double flops = flops_of(*report.problem, pass);
  const auto ranks = static_cast<double>(report.ranks.size());
  const bool computes = report.mode != Mode::comm_only && seconds > 0;
  const auto peak = fma_peak_of(report);
  return {{"seconds", seconds},
          {"share", share_of(report, seconds)},
          {"flops", flops},
          {"tflops", computes ? Json(flops / seconds * 1e-12) : Json(nullptr)},
          {"fraction_of_peak", computes && peak ? Json(flops / seconds / ranks / *peak) : Json(nullptr)}};
}

// Null if it is not known.
Json roofline_json(const Report& report) {
  const auto roofline = roofline_of(report);
  if (!roofline) return nullptr;
  return {{"flops", roofline->flops},
          {"bytes", roofline->bytes},
          {"bytes_counted", byte_convention(report.direction)},
          {"compute_floor_seconds", roofline->compute_seconds},
          {"memory_floor_seconds", roofline->memory_seconds},
          {"binding_floor", roofline->memory_binds() ? "memory" : "compute"},
          {"seconds_over_floor", roofline->over_floor}};
}

// All rates refer to the median iteration; its time is that of the slowest rank.
void add_rates(Json& json, const Report& report) {
  constexpr double kTera = 1e-12;
  const auto rate = rate_of(report);
  const auto ranks = static_cast<double>(report.ranks.size());
  const Spread over_ranks = seconds_over_ranks(report);
  json["visible_pairs"] = report.problem->mask.visible_pairs();
  json["flops"] = flops_of(report);
  json["flop_convention"] = flop_convention(report.direction);
  json["seconds"] = {
      {"min", report.seconds.min}, {"median", report.seconds.median}, {"max", report.seconds.max}};
  json["seconds_over_ranks"] = {{"min", over_ranks.min}, {"mean", over_ranks.mean}, {"max", over_ranks.max}};
  json["tflops"] = scaled(rate, kTera);
  json["tflops_per_rank"] = scaled(rate, kTera / ranks);
  json["tokens_per_second"] =
      static_cast<double>(report.problem->shape.batch * report.problem->seqlen_q()) / report.seconds.median;
  json["peak_instruction"] = report.product;
  json["peak_source"] = peak_source(report);
  json["fma_peak_tflops_per_rank"] = scaled(fma_peak_of(report), kTera);
  json["fraction_of_peak"] = or_null(fraction_of_peak(report));
  json["read_gbytes_per_second_per_rank"] = scaled(read_bandwidth_of(report), 1e-9);
  json["roofline"] = roofline_json(report);
  if (report.direction != Direction::both) return;
  json["forward"] = pass_json(report, Direction::forward, report.forward_seconds);
  json["backward"] = pass_json(report, Direction::backward, report.backward_seconds);
}

void add_ring(Json& json, const Report& report) {
  json["hops"] = report.hops;
  json["bytes_sent_per_rank"] = largest(report, &RankFigures::bytes_sent);
  json["messages_sent_per_rank"] = largest(report, &RankFigures::messages_sent);
  json["compute_seconds"] = or_null(report.compute_seconds);
  json["wait_seconds"] = or_null(report.wait_seconds);
  json["comm_seconds"] = or_null(report.comm_seconds);
  json["hidden_fraction"] = or_null(hidden_fraction(report));
  json["link_gbps"] = report.link_gbps > 0 ? Json(report.link_gbps) : Json(nullptr);
  json["link_latency_us"] = report.link_latency_us;
  json["balance"] = report.balance.value();
  json["workspace_bytes_per_rank"] = largest(report, &RankFigures::workspace_bytes);
  json["peak_rss_bytes_per_rank"] = largest(report, &RankFigures::peak_rss_bytes);
  json["peak_rss_of"] = report.ranks_share_a_process ? "process of all ranks" : "rank";
}

}  // namespace

double flops_of(const Report& report) { return flops_of(*report.problem, report.direction); }

double share_of(const Report& report, double seconds) {
  const double sum = report.forward_seconds + report.backward_seconds;
  return sum > 0 ? seconds / sum : 0;
}

std::optional<double> rate_of(const Report& report) {
  if (report.mode == Mode::comm_only) return std::nullopt;
  return flops_of(report) / report.seconds.median;
}

// The mean: ranks may sit on unequal machines.
std::optional<double> fma_peak_of(const Report& report) {
  double sum = 0;
  for (const RankFigures& rank : report.ranks) sum += rank.fma_peak;
  if (!(sum > 0)) return std::nullopt;
  return sum / static_cast<double>(report.ranks.size());
}

std::optional<double> fraction_of_peak(const Report& report) {
  const auto rate = rate_of(report), peak = fma_peak_of(report);
  if (!rate || !peak) return std::nullopt;
  return *rate / static_cast<double>(report.ranks.size()) / *peak;
}

std::optional<double> hidden_fraction(const Report& report) {
  const bool transfers_beside_work = report.mode == Mode::overlap || report.mode == Mode::blocking;
  if (!transfers_beside_work || !report.wait_seconds || !report.comm_seconds) return std::nullopt;
  if (!(*report.comm_seconds > 0)) return std::nullopt;
  return 1 - *report.wait_seconds / *report.comm_seconds;
}

Spread seconds_over_ranks(const Report& report) {
  std::vector<double> seconds;
  for (const RankFigures& rank : report.ranks) seconds.push_back(rank.seconds);
  return spread_of(std::move(seconds));
}

// Thrown after the report was written, so that a wrong run can be read.
void require_right_numbers(const Report& report) {
  if (!report.check || report.check->passed) return;
  throw SharedFailure({.code = ExitCode::wrong_numbers, .text = "wrong numbers: " + report.check->text});
}

void add_problem(Json& json, const Problem& problem) {
  const HeadShape heads = problem.heads();
  const Rope& rope = problem.rope;
  json["batch"] = heads.batch;
  json["seqlen_q"] = problem.seqlen_q();
  json["seqlen_k"] = problem.seqlen_k();
  json["num_heads"] = heads.num_heads;
  json["num_heads_kv"] = heads.num_heads_kv;
  json["head_dim"] = heads.head_dim;
  json["head_dim_v"] = heads.head_dim_v;
  json["dtype"] = name_of(problem.dtype);
  json["softmax_scale"] = problem.scale();
  json["rope"] = name_of(rope.pairing);
  if (rope.pairing != Rope::Pairing::none) {
    json["rope_base"] = rope.base;
    json["rope_dim"] = rotary_dim(rope, heads.head_dim);
    json["position_offset"] = rope.position_offset;
  }
  json["mask"] = problem.mask.name();
}

// The order of the fields is the order in which a person reads them.
Json json_of(const Report& report) {
  Json json;
  json["subcommand"] = name_of(report.command);
  json["version"] = kVersion;
  add_machine(json, report);
  add_problem(json, *report.problem);
  json["layout"] = name_of(report.layout);
  json["direction"] = name_of(report.direction);
  json["mode"] = name_of(report.mode);
  json["iterations"] = report.iterations;
  json["warmup"] = report.warmup;
  json["seed"] = or_null(report.seed);
  add_rates(json, report);
  add_ring(json, report);
  json["check"] = check_json(report);
  json["test_fault"] = report.test_fault.empty() ? Json(nullptr) : Json(report.test_fault);
  Json ranks = Json::array();
  for (std::size_t r = 0; r < report.ranks.size(); ++r) ranks.push_back(rank_json(report, r));
  json["per_rank"] = std::move(ranks);
  return json;
}

}  // namespace ringattn::launch
