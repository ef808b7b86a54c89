// The keys of dk and dv that the check has picked, against float64.
#pragma once
#include <chrono>

#include "comm/communicator.h"
#include "launch/checked_keys.h"
#include "launch/checked_tensors.h"
#include "launch/judgement.h"
#include "src/problem.h"

namespace ringattn::launch {

// What one rank saw. Plain numbers: gathered as bytes.
struct KeysSeen {
  Seen dk, dv;
};

struct KeysToCheck {
  const Problem& problem;
  const Sharding& sharding;
  const CheckInputs& inputs;
  const CheckedOutput& output;
  ConstTensorView dk, dv;  // [batch, rows of this rank, num_heads_kv, ..]
};

// Collective. Every rank recomputes the keys that it holds, in one pass over the queries of a head for all of
// them, so that a query is made or read once.
KeysSeen check_key_gradients(Communicator& comm, const KeyPlan& plan, const KeysToCheck& what,
                             std::chrono::milliseconds patience);

// Bytes that it holds at most, without row statistics and what the inputs hold themselves.
double key_check_bytes(const Problem& problem);

}  // namespace ringattn::launch
