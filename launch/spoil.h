// The output spoilt on purpose (RINGATTN_TEST_FAULT=output-...), to see the check find it.
#pragma once
#include "launch/checked_rows.h"
#include "launch/fault_hook.h"
#include "launch/tensors.h"

namespace ringattn::launch {

// nan, inf, off (by 0.01): one element of the last checked row and its first checked head, on the rank that
// holds it. zero: all of this rank's output.
void spoil_output(OutputFault fault, const CheckPlan& plan, const Sharding& sharding, int rank,
                  ShardTensors& tensors);

}  // namespace ringattn::launch
