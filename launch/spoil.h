// A result spoilt on purpose (RINGATTN_TEST_FAULT=output-..., dq-... and so on), to see the check find it.
#pragma once
#include "launch/checked_keys.h"
#include "launch/fault_hook.h"
#include "launch/tensors.h"

namespace ringattn::launch {

// nan, inf, off (by 0.01): one element of the last checked row, or key, and its first checked head, on the
// rank that holds it. zero: all of this rank's tensor. Throws UsageError naming the fault if the tensor is a
// gradient and there are none. Does nothing without a fault.
void spoil_result(const TestFaults& faults, const CheckPlan& rows, const KeyPlan& keys,
                  const Sharding& sharding, int rank, ShardTensors& tensors);

}  // namespace ringattn::launch
