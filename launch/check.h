// Is the output right? Sampled query rows are recomputed in float64 over all their keys by the unblocked
// reference (kernels/reference), from inputs that are read or made again, and compared.
#pragma once
#include <array>
#include <chrono>
#include <string>

#include "comm/communicator.h"
#include "launch/checked_rows.h"
#include "launch/head_rows.h"
#include "src/problem.h"

namespace ringattn::launch {

// The tensors as they were given, by global position; any rank can have any row.
struct CheckInputs {
  ReadHead q, k, v;
};

// This rank's rows of the result.
struct CheckedOutput {
  ConstTensorView out;
  LseView lse;
};

// The element that is farthest from the reference.
struct Deviation {
  double error = -1;  // |got - want|; infinite if only one of them is NaN or infinite; below 0: none compared
  double got = 0, want = 0;
  index_t batch = 0, position = 0, head = 0, element = 0;
};

// One tensor, out or lse, judged over all ranks.
struct Judgement {
  Deviation worst;
  double naive_error = 0;  // largest error of the naive evaluation of the same rows
  double largest = 0;      // largest |want|
  double bound = 0;
  bool passed = false;
};

struct CheckOutcome {
  index_t rows = 0, heads_per_row = 0, num_heads = 0;
  Judgement out{}, lse{};
  bool passed = false;
  std::string text{};  // what is wrong: indices and both values; "" if passed
};

// |got - want|, 0 if they are the same infinity or both NaN, infinite if that cannot be said: never NaN, so
// that no comparison with it passes by accident.
double difference(double got, double want);

// bound = max(2 * naive_error, half a unit in the last place of `largest` in the output's type)
//         + 1e-6 * max(|want|): what the type itself cannot hold is no error of the algorithm.
double error_bound(DType type, double naive_error, double largest);

// Bytes that check_output holds at most on a rank, without what the inputs hold themselves.
double check_bytes(const Problem& problem);

// Collective. The same outcome on every rank.
CheckOutcome check_output(Communicator& comm, const Problem& problem, const Sharding& sharding,
                          const CheckPlan& plan, const CheckInputs& inputs, const CheckedOutput& output,
                          std::chrono::milliseconds patience);

}  // namespace ringattn::launch
