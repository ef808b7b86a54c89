// The check of all that an iteration computed, as bench and run make it: the output first, then the gradients
// if there are any.
#pragma once
#include "launch/check.h"
#include "launch/session.h"
#include "launch/tensors.h"

namespace ringattn::launch {

// Which rows and keys are recomputed. keys is empty where the options' direction has no gradients.
struct ResultPlan {
  CheckPlan rows;
  KeyPlan keys;
};
ResultPlan plan_result_check(const Session& session, const Problem& problem);

// Collective.
CheckOutcome check_result(Session& session, const Problem& problem, const Sharding& sharding,
                          const ResultPlan& plan, const CheckInputs& inputs, const ShardTensors& tensors);

}  // namespace ringattn::launch
