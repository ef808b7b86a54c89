// Is the output right? Sampled query rows are recomputed in float64 over all their keys by the unblocked
// reference (kernels/reference), from inputs that are read or made again, and compared.
#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "comm/communicator.h"
#include "launch/checked_rows.h"
#include "launch/checked_tensors.h"
#include "launch/gradient_check.h"
#include "launch/judgement.h"
#include "src/problem.h"

namespace ringattn::launch {

struct CheckOutcome {
  index_t rows = 0, heads_per_row = 0, num_heads = 0;
  Judgement out{}, lse{};
  std::optional<GradientOutcome> gradients{};  // if there are any
  bool passed = false;
  std::string text{};  // what is wrong: indices and both values; "" if passed
};

// Puts what was found of the gradients into an outcome.
void add_gradients(CheckOutcome& outcome, const GradientOutcome& gradients);

// Bytes that check_output holds at most on a rank, without what the inputs hold themselves.
double check_bytes(const Problem& problem);

// Collective. The same outcome on every rank.
CheckOutcome check_output(Communicator& comm, const Problem& problem, const Sharding& sharding,
                          const CheckPlan& plan, const CheckInputs& inputs, const CheckedOutput& output,
                          std::chrono::milliseconds patience);

}  // namespace ringattn::launch
