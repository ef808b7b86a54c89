#include "launch/ring_report.h"

#include <stdexcept>

#include "kernels/cpu/cpu.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

// Medians, because one disturbed iteration should not move a rank's figure.
double median_of(const std::vector<Iteration>& iterations, double Iteration::*figure) {
  std::vector<double> values;
  values.reserve(iterations.size());
  for (const Iteration& iteration : iterations) values.push_back(iteration.*figure);
  return spread_of(std::move(values)).median;
}

}  // namespace

RingFacts::RingFacts(const RingAttention& ring, Direction direction, Backend computed_by)
    : backend(ring.backend()),
      hops(ring.plan().hops().size()),
      workspace_bytes(ring.workspace().total()),
      planned(traffic_of(ring.problem(), ring.plan(), direction, computed_by)),
      bytes_to_move(bytes_of(ring.problem(), ring.plan(), direction, computed_by)) {}

void require_planned_traffic(Session& session, const RingFacts& facts, const Iterations& iterations,
                             Mode mode) {
  // Counted by the communicator, below every decorator that might hide a message.
  const Traffic planned = mode == Mode::compute_only ? Traffic{} : facts.planned;
  shared_step(*session.comm, session.options.deadline, [&] {
    for (const Iteration& iteration : iterations[static_cast<std::size_t>(session.rank())]) {
      if (iteration.bytes == planned.bytes_sent && iteration.messages == planned.messages_sent) continue;
      throw std::logic_error("sent " + std::to_string(iteration.bytes) + " bytes in " +
                             std::to_string(iteration.messages) + " messages, the plan says " +
                             std::to_string(planned.bytes_sent) + " in " +
                             std::to_string(planned.messages_sent));
    }
  });
}

Report make_report(Session& session, const Problem& problem, const Sharding& sharding, const RingFacts& facts,
                   const Iterations& iterations, const Ceilings& ceilings, std::uint64_t peak_rss) {
  const auto rank = static_cast<std::size_t>(session.rank());
  const std::vector<Iteration>& own = iterations[rank];
  const auto if_timed = [&](double seconds) { return session.gpu ? std::nullopt : std::optional(seconds); };
  const RankFigures mine{.threads = session.threads(),
                         .cpus_allowed = static_cast<int>(session.placement.ranks[rank].cpus.size()),
                         .q_rows = sharding.q.rows(session.rank()),
                         .k_rows = sharding.k.rows(session.rank()),
                         .seconds = median_of(own, &Iteration::seconds),
                         .forward_seconds = median_of(own, &Iteration::forward),
                         .backward_seconds = median_of(own, &Iteration::backward),
                         .compute_seconds = if_timed(median_of(own, &Iteration::compute)),
                         .wait_seconds = if_timed(median_of(own, &Iteration::wait)),
                         .fma_peak = ceilings.fma_peak,
                         .read_bandwidth = ceilings.read_bandwidth,
                         .bytes_to_move = facts.bytes_to_move,
                         .bytes_sent = own.at(0).bytes,
                         .messages_sent = own.at(0).messages,
                         .workspace_bytes = facts.workspace_bytes,
                         .peak_rss_bytes = peak_rss};
  Report report;
  report.command = session.options.command;
  report.problem = &problem;
  report.layout = session.options.problem.layout;
  report.communicator = session.ring_name;
  report.communicator_why = session.ring_why;
  report.backend = facts.backend;
  report.isa = facts.backend.substr(facts.backend.find('/') + 1);
  if (session.gpu) {
    report.device = session.gpu->device;
    report.gpus = session.gpu->placement.ranks;
    report.product = device_peak(*report.device, problem.dtype).unit;
  } else {
    report.product = cpu_product(problem.dtype, session.options.isa);
  }
  report.direction = session.options.direction;
  report.mode = session.options.mode;
  report.oversubscribed = session.placement.oversubscribed();
  report.ranks_share_a_process = session.placement.ranks_are_threads;
  report.link_gbps = session.options.link_gbps;
  report.link_latency_us = session.options.link_latency_us;
  report.ranks = gather_values(*session.comm, mine, session.options.deadline);
  report.hops = facts.hops;
  // Only rank 0 prints, and planning all ranks is work.
  if (session.rank() == 0) report.balance = ring_balance(problem, sharding);
  report.iterations = static_cast<int>(own.size());
  report.seconds = spread_of(slowest(iterations, &Iteration::seconds));
  report.forward_seconds = spread_of(slowest(iterations, &Iteration::forward)).median;
  report.backward_seconds = spread_of(slowest(iterations, &Iteration::backward)).median;
  report.compute_seconds = if_timed(spread_of(slowest(iterations, &Iteration::compute)).median);
  report.wait_seconds = if_timed(spread_of(slowest(iterations, &Iteration::wait)).median);
  report.test_fault = session.faults.text;
  return report;
}

}  // namespace ringattn::launch
