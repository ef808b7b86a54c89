// The rows of dq that the check has picked, against float64.
#pragma once
#include "launch/checked_rows.h"
#include "launch/checked_tensors.h"
#include "launch/judgement.h"
#include "src/problem.h"

namespace ringattn::launch {

// This rank's rows of the plan. dq [batch, rows of this rank, num_heads, head_dim].
Seen check_query_gradients(const Problem& problem, const Sharding& sharding, int rank, const CheckPlan& plan,
                           const CheckInputs& inputs, const ConstTensorView& dq);

// Bytes that it holds at most, without what the inputs hold themselves.
double query_check_bytes(const Problem& problem);

}  // namespace ringattn::launch
