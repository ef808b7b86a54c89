#include "launch/session.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "comm/throttled.h"
#include "kernels/cpu/cpu.h"
#include "launch/check.h"
#include "launch/option_values.h"
#include "launch/problem_options.h"
#include "launch/steps.h"
#include "launch/tensors.h"

namespace ringattn::launch {
namespace {

// The kernel would refuse it too, but does not know the name of the option.
void check_isa(const std::string& isa) {
  const std::vector<std::string> known = cpu_isas();
  if (isa == "auto" || std::ranges::find(known, isa) != known.end()) return;
  std::string list = "auto";
  for (const std::string& name : known) list += ", " + name;
  refuse("isa", isa, "one of " + list + " on this machine");
}

void warn(const std::string& text) { std::fprintf(stderr, "ringattn: warning: %s\n", text.c_str()); }

}  // namespace

RingOptions Session::ring_options(Mode mode) const {
  return {.threads = threads(), .deadline = options.deadline, .mode = mode, .isa = options.isa};
}

Sharding Session::sharding(const Problem& problem) const {
  return Sharding::make(options.problem.layout, problem.seqlen_q(), problem.seqlen_k(), ranks());
}

Session open_session(const std::shared_ptr<Communicator>& comm, const Options& options,
                     bool ranks_are_threads) {
  Session session{.options = options, .comm = comm, .comm_name = comm->name(), .placement = {}, .faults = {}};
  shared_step(*comm, options.deadline, [&] {
    check_isa(options.isa);
    session.faults = parse_test_faults(std::getenv("RINGATTN_TEST_FAULT"));
  });
  session.placement = place_ranks(*comm, options.threads, ranks_are_threads, options.deadline);
  // Faults below, the link above: a message that is lost on purpose is lost on the slow link as well.
  session.comm = with_faults(session.comm, session.faults);
  // The placement has gathered over the bare communicator: small talk is not slowed down.
  if (options.link_gbps > 0 || options.link_latency_us > 0) {
    session.comm = make_throttled(
        session.comm, Link{.gigabits_per_second = options.link_gbps, .latency_us = options.link_latency_us});
  }
  if (comm->rank() == 0) {
    for (const std::string& warning : session.placement.warnings()) warn(warning);
    if (!session.faults.text.empty()) warn("RINGATTN_TEST_FAULT is on: " + session.faults.text);
  }
  return session;
}

void agree_on_problem(Session& session, const Problem& problem, const Sharding& sharding) {
  // The problem comes first, so that a different length is reported as that and not as its consequence.
  std::vector<Field> fields = fingerprint(problem, sharding);
  for (Field& field : program_fields(session.options)) fields.push_back(std::move(field));
  shared_call([&] { agree_on_fields(*session.comm, fields, Clock::now() + session.options.deadline); });
}

void require_shard_memory(Session& session, const Problem& problem, const Sharding& sharding,
                          double reader_bytes) {
  const int ranks_in_process = session.placement.ranks_are_threads ? session.ranks() : 1;
  shared_step(*session.comm, session.options.deadline, [&] {
    const Pass pass = pass_of(session.options.direction);
    const Workspace ring = workspace(problem, sharding, session.rank(), session.threads(), pass);
    double needed = shard_bytes(problem, sharding, session.rank(), pass) + static_cast<double>(ring.total());
    if (session.options.check_rows > 0) {
      // The gradients' check comes after the output's.
      const double gradients = pass == Pass::backward ? gradient_check_bytes(problem) : 0;
      needed += std::max(check_bytes(problem), gradients) + reader_bytes;
    }
    require_memory(needed, memory_room(session.placement.ranks_on_node(session.rank()), ranks_in_process));
  });
}

}  // namespace ringattn::launch
