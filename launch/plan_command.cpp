#include "launch/plan_command.h"

#include <cstdlib>

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/devices.h"
#include "launch/gpus.h"
#include "launch/machine.h"
#include "launch/output.h"
#include "launch/placement.h"
#include "launch/plan_report.h"
#include "launch/problem_options.h"

namespace ringattn::launch {
namespace {

// What a kernel can be expected to reach of the peak; bench measures the true fraction.
constexpr double kAssumedFraction = 0.8;
// For planning all ranks.
constexpr double kPatienceSeconds = 20;

int planned_threads(const Options& options) {
  if (options.threads) return static_cast<int>(*options.threads);
  const Placement alone{.ranks = {{.host = host_name(), .cpus = allowed_cpus(), .threads = 0}}};
  return default_threads(alone, 0, std::getenv("OMP_NUM_THREADS"));
}

// As of a job whose ranks all see what this machine sees. What the CUDA kernel would hold and send is known
// without a GPU, and in every build.
Backend planned_backend(const Options& options, const CudaMachine& machine) {
  if (options.backend == BackendChoice::automatic)
    return machine.unavailable.empty() ? Backend::cuda : Backend::cpu;
  return options.backend == BackendChoice::cuda ? Backend::cuda : Backend::cpu;
}

// What a rank multiplies with, and how fast that can be; without a GPU, or with one that is not known, 0.
void add_peak(PlanReport& report, const CudaMachine& machine) {
  const DType dtype = report.problem->dtype;
  if (report.backend == Backend::cpu) {
    report.product = cpu_product(dtype);
    report.fma_peak = measure_product_peak(dtype, report.threads);
    report.peak_source = std::to_string(report.threads) + " threads here";
    return;
  }
  if (!machine.unavailable.empty()) {
    report.peak_source = "no GPU is here to reckon with: " + machine.unavailable;
    return;
  }
  const CudaDevice& device = device_of_rank(machine, 0);
  const DevicePeak peak = device_peak(device, dtype);
  report.product = peak.unit;
  report.fma_peak = peak.flops;
  report.peak_source = device.name + (peak.flops > 0 ? " by its data sheet" : ": its peak is not known");
}

// One rank alone, when it was asked for.
RingSurvey survey_rank(const Problem& problem, const Sharding& sharding, const Plan& plan, int threads,
                       Backend backend) {
  RingSurvey survey{.ranks = {planned_rank(problem, sharding, plan, threads, backend)},
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
  const CudaMachine machine = find_cuda_devices();
  PlanReport report{.problem = &problem,
                    .layout = options.problem.layout,
                    .backend = planned_backend(options, machine),
                    .total_ranks = *options.ranks,
                    .threads = planned_threads(options),
                    .tiles = options.tiles};
  if (options.rank) {
    report.detail = Plan(problem, sharding, *options.rank);
    report.survey = survey_rank(problem, sharding, *report.detail, report.threads, report.backend);
  } else {
    report.survey = survey_ring(problem, sharding, report.threads, kPatienceSeconds, report.backend);
  }
  add_peak(report, machine);
  report.machine = {.flops_per_second = kAssumedFraction * report.fma_peak,
                    .link_gbps = options.link_gbps,
                    .link_latency_us = options.link_latency_us};
  output.write(table_of(report), json_lines_of(report));
}

}  // namespace ringattn::launch
