#include "launch/gradient_check.h"

#include <algorithm>

#include "launch/key_check.h"
#include "launch/query_check.h"
#include "launch/row_statistics.h"
#include "launch/steps.h"

namespace ringattn::launch {
namespace {

constexpr double kNaiveErrors = 3;

// A sequence without keys has no gradients of them to compare, which is no failure.
Judgement judge_keys(const Problem& problem, const std::vector<KeysSeen>& ranks, Seen KeysSeen::*tensor) {
  Judgement judgement = judge({.type = problem.dtype, .naive_errors = kNaiveErrors}, ranks, tensor);
  if (problem.seqlen_k() == 0) judgement.passed = true;
  return judgement;
}

}  // namespace

double gradient_check_bytes(const Problem& problem) {
  // The two halves of the check come one after the other.
  return std::max(query_check_bytes(problem), key_check_bytes(problem) + row_statistics_bytes(problem));
}

GradientOutcome check_gradients(Communicator& comm, const Problem& problem, const Sharding& sharding,
                                const GradientsToCheck& what, std::chrono::milliseconds patience) {
  // dq takes three products of a pair where the rows' own check takes two.
  const auto enough = check_patience(2 * what.rows.flops + what.keys.flops, patience);
  Seen queries;
  shared_step(comm, enough, [&] {
    queries =
        check_query_gradients(problem, sharding, comm.rank(), what.rows, what.inputs, what.gradients.dq);
  });
  const KeysSeen keys = check_key_gradients(
      comm, what.keys, {problem, sharding, what.inputs, what.output, what.gradients.dk, what.gradients.dv},
      enough);
  const std::vector<Seen> all_queries = gather_values(comm, queries, enough);
  const std::vector<KeysSeen> all_keys = gather_values(comm, keys, enough);

  GradientOutcome outcome{.keys = static_cast<index_t>(what.keys.keys.size()),
                          .kv_heads_per_key = what.keys.heads_per_key,
                          .num_heads_kv = problem.shape.num_heads_kv,
                          .rows_recomputed = what.keys.recompute_rows};
  outcome.dq = judge({.type = problem.dtype, .naive_errors = kNaiveErrors}, all_queries);
  outcome.dk = judge_keys(problem, all_keys, &KeysSeen::dk);
  outcome.dv = judge_keys(problem, all_keys, &KeysSeen::dv);
  outcome.passed = outcome.dq.passed && outcome.dk.passed && outcome.dv.passed;
  for (const auto& [name, judgement] :
       {std::pair{"dq", &outcome.dq}, std::pair{"dk", &outcome.dk}, std::pair{"dv", &outcome.dv}}) {
    if (!judgement->passed && outcome.text.empty()) outcome.text = wrong_text(name, *judgement);
  }
  return outcome;
}

}  // namespace ringattn::launch
