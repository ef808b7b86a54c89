#include "launch/ring_survey.h"

#include <algorithm>
#include <chrono>

#include "launch/direction.h"
#include "launch/tensors.h"
#include "launch/units.h"
#include "src/attention.h"

namespace ringattn::launch {
namespace {

// All ranks have the same hops; at each of them the slowest one holds up the others.
void add_hops(std::vector<PlannedHop>& hops, const Plan& plan) {
  hops.resize(std::max(hops.size(), plan.hops().size()));
  for (std::size_t s = 0; s < plan.hops().size(); ++s) {
    hops[s].largest_pairs = std::max(hops[s].largest_pairs, plan.hops()[s].pairs);
    hops[s].largest_rows = std::max(hops[s].largest_rows, plan.hops()[s].k_rows);
  }
}

PlannedPass planned_pass(const Problem& problem, const Sharding& sharding, const Plan& plan, int threads,
                         Backend backend, Direction direction) {
  const Pass pass = pass_of(direction);
  const double flops =
      pass == Pass::forward ? forward_flops(problem, plan.pairs()) : backward_flops(problem, plan.pairs());
  return {.flops = flops,
          .traffic = traffic_of(problem, plan, direction, backend),
          .workspace_bytes =
              static_cast<double>(workspace(problem, sharding, plan.rank(), threads, pass, backend).total()),
          .tensor_bytes = shard_bytes(problem, sharding, plan.rank(), pass)};
}

}  // namespace

PlannedRank planned_rank(const Problem& problem, const Sharding& sharding, const Plan& plan, int threads,
                         Backend backend) {
  PlannedRank figures{
      .rank = plan.rank(), .q_rows = plan.q_rows(), .k_rows = plan.k_rows(), .pairs = plan.pairs()};
  for (const Hop& hop : plan.hops()) figures.tiles += hop.tile_count;
  figures.forward = planned_pass(problem, sharding, plan, threads, backend, Direction::forward);
  figures.backward = planned_pass(problem, sharding, plan, threads, backend, Direction::backward);
  return figures;
}

RingSurvey survey_ring(const Problem& problem, const Sharding& sharding, int threads, double patience_seconds,
                       Backend backend) {
  RingSurvey survey;
  Balance balance{.ranks = sharding.ranks()};
  const auto add = [&](int rank) {
    const Plan plan(problem, sharding, rank);
    survey.ranks.push_back(planned_rank(problem, sharding, plan, threads, backend));
    add_hops(survey.hops, plan);
    balance.total_pairs += plan.pairs();
  };
  const auto start = std::chrono::steady_clock::now();
  add(0);
  // Timed and not counted: what a rank costs depends on mask, layout and machine alike.
  const std::chrono::duration<double> one = std::chrono::steady_clock::now() - start;
  if (const double all = one.count() * sharding.ranks(); all > patience_seconds) {
    survey.incomplete = "planning all " + std::to_string(sharding.ranks()) + " ranks would take about " +
                        seconds_text(all) + "; ranks 0, " + std::to_string(sharding.ranks() / 2) + " and " +
                        std::to_string(sharding.ranks() - 1) + " were planned";
    if (sharding.ranks() > 2) add(sharding.ranks() / 2);
    if (sharding.ranks() > 1) add(sharding.ranks() - 1);
    return survey;
  }
  for (int rank = 1; rank < sharding.ranks(); ++rank) add(rank);
  for (const PlannedHop& hop : survey.hops) balance.critical_pairs += hop.largest_pairs;
  survey.balance = balance;
  return survey;
}

Estimate estimate(const Problem& problem, const std::vector<PlannedHop>& hops, const Machine& machine,
                  Backend backend) {
  const KernelConfig config{.shape = problem.heads(), .dtype = problem.dtype};
  Estimate sum;
  for (std::size_t s = 0; s < hops.size(); ++s) {
    const double flops = forward_flops(problem, hops[s].largest_pairs);
    const double compute = machine.flops_per_second > 0 ? flops / machine.flops_per_second : 0;
    // The last block is not handed on. Without a link there is no estimate of a transfer.
    const bool travels = machine.has_link() && s + 1 < hops.size() && hops[s].largest_rows > 0;
    const double bits = 8 * static_cast<double>(block_bytes(backend, config, hops[s].largest_rows));
    const double on_wire = machine.link_gbps > 0 ? bits / (machine.link_gbps * 1e9) : 0;
    const double transfer = travels ? machine.link_latency_us * 1e-6 + on_wire : 0;
    sum.compute_seconds += compute;
    sum.transfer_seconds += transfer;
    sum.seconds += std::max(compute, transfer);
  }
  return sum;
}

}  // namespace ringattn::launch
