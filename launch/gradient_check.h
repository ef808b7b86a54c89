// Are the gradients right? Sampled rows of dq are recomputed in float64 over all keys that they see, with a
// softmax of their own; sampled keys of dk and dv over all queries that see them (launch/row_statistics.h
// says what stands for those queries' other keys). The bound is 3 times the error of a naive implementation
// in the same type (launch/judgement.h).
#pragma once
#include <chrono>
#include <string>

#include "comm/communicator.h"
#include "launch/checked_keys.h"
#include "launch/checked_tensors.h"
#include "launch/judgement.h"
#include "src/problem.h"

namespace ringattn::launch {

struct GradientOutcome {
  index_t keys = 0, kv_heads_per_key = 0, num_heads_kv = 0;
  bool rows_recomputed = false;  // see KeyPlan
  Judgement dq{}, dk{}, dv{};
  bool passed = false;
  std::string text{};  // what is wrong; "" if passed
};

// Bytes that check_gradients holds at most on a rank, without what the inputs hold themselves.
double gradient_check_bytes(const Problem& problem);

struct GradientsToCheck {
  const CheckPlan& rows;  // of dq
  const KeyPlan& keys;    // of dk and dv
  const CheckInputs& inputs;
  const CheckedOutput& output;
  CheckedGradients gradients;
};

// Collective. The same outcome on every rank.
GradientOutcome check_gradients(Communicator& comm, const Problem& problem, const Sharding& sharding,
                                const GradientsToCheck& what, std::chrono::milliseconds patience);

}  // namespace ringattn::launch
