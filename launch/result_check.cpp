#include "launch/result_check.h"

namespace ringattn::launch {

ResultPlan plan_result_check(const Session& session, const Problem& problem) {
  ResultPlan plan{.rows = plan_check(problem, session.options.check_rows), .keys = {}};
  if (session.options.direction != Direction::forward)
    plan.keys = plan_key_check(problem, session.options.check_rows);
  return plan;
}

CheckOutcome check_result(Session& session, const Problem& problem, const Sharding& sharding,
                          const ResultPlan& plan, const CheckInputs& inputs, const ShardTensors& tensors) {
  const std::chrono::milliseconds patience = session.options.deadline;
  const CheckedOutput output{.out = as_const(tensors.views.out), .lse = tensors.views.lse};
  CheckOutcome outcome = check_output(*session.comm, problem, sharding, plan.rows, inputs, output, patience);
  if (session.options.direction == Direction::forward) return outcome;
  const Gradients& g = tensors.views.gradients;
  add_gradients(
      outcome,
      check_gradients(*session.comm, problem, sharding,
                      {.rows = plan.rows,
                       .keys = plan.keys,
                       .inputs = inputs,
                       .output = output,
                       .gradients = {.dq = as_const(g.dq), .dk = as_const(g.dk), .dv = as_const(g.dv)}},
                      patience));
  return outcome;
}

}  // namespace ringattn::launch
