#include "launch/plan_command.h"

#include <cstdlib>

#include "kernels/cpu/cpu.h"
#include "launch/machine.h"
#include "launch/output.h"
#include "launch/placement.h"
#include "launch/plan_report.h"
#include "launch/problem_options.h"

namespace ringattn::launch {
namespace {

// What a kernel can be expected to reach of the peak; bench measures the true fraction.
constexpr double kAssumedFraction = 0.8;

int planned_threads(const Options& options) {
  if (options.threads) return static_cast<int>(*options.threads);
  const Placement alone{.ranks = {{.host = host_name(), .cpus = allowed_cpus(), .threads = 0}}};
  return default_threads(alone, 0, std::getenv("OMP_NUM_THREADS"));
}

// One rank alone, when it was asked for.
RingSurvey survey_rank(const Problem& problem, const Sharding& sharding, const Plan& plan, int threads) {
  RingSurvey survey{.ranks = {planned_rank(problem, sharding, plan, threads)},
                    .incomplete = "only rank " + std::to_string(plan.rank()) + " was planned"};
  for (const Hop& hop : plan.hops()) {
    survey.hops.push_back({.largest_pairs = hop.pairs, .largest_rows = hop.k_rows});
  }
  return survey;
}

}  // namespace

void plan_command(const Options& options) {
  Output output(options.json);
  const Problem problem = make_problem(options.problem, shapes_of(options.problem));
  const Sharding sharding =
      Sharding::make(options.problem.layout, problem.seqlen_q(), problem.seqlen_k(), *options.ranks);
  PlanReport report{.problem = &problem,
                    .layout = options.problem.layout,
                    .total_ranks = *options.ranks,
                    .threads = planned_threads(options),
                    .tiles = options.tiles};
  if (options.rank) {
    report.detail = Plan(problem, sharding, *options.rank);
    report.survey = survey_rank(problem, sharding, *report.detail, report.threads);
  } else {
    report.survey = survey_ring(problem, sharding, report.threads);
  }
  report.product = cpu_product(problem.dtype);
  report.fma_peak = measure_product_peak(problem.dtype, report.threads);
  report.machine = {.flops_per_second = kAssumedFraction * report.fma_peak,
                    .link_gbps = options.link_gbps,
                    .link_latency_us = options.link_latency_us};
  output.write(table_of(report), json_lines_of(report));
}

}  // namespace ringattn::launch
