// Backward's side of support.h: a kernel run from load_rows to finish_gradients, and what to compare it with.
#pragma once
#include "kernels/reference/attention.h"
#include "tests/kernels/support.h"

namespace ringattn::test {

// What backward takes. out and lse are the oracle's, rounded once, so that nothing depends on forward.
struct BackwardInputs {
  Tensor q, k, v, dout, out;
  std::vector<float> lse;
};
BackwardInputs backward_inputs(const Problem& problem, const Inputs& inputs, const Tensor& dout);
BackwardInputs random_backward_inputs(const Problem& problem, unsigned seed, double deviation = 1);
// The same with out and lse formed anew, after a change of q, k or v.
BackwardInputs reformed(const Problem& problem, const BackwardInputs& inputs);

struct Gradients {
  Tensor dq, dk, dv;
};
bool same_bits(const Gradients& a, const Gradients& b);

// reserve, load_rows, then for each block load_block, attend_backward, finish_gradients, and finish_rows.
// Blocks and outputs are full of NaN at first, gradient blocks of 0.
Gradients run_backward(Kernel& kernel, const Problem& problem, const BackwardInputs& inputs,
                       const Blocks& blocks = {}, const Poll& poll = {});
Gradients run_backward_cpu(const Problem& problem, const BackwardInputs& inputs,
                           const std::string& isa = "auto", const Blocks& blocks = {}, int threads = 1);

// reference_gradients, turned back.
ReferenceGradients gradient_oracle(const Problem& problem, const BackwardInputs& inputs);

// Asserts that the gradients are the oracle's: NaN in the same places, errors at most three times those of a
// naive implementation in the same dtype, plus a floor.
void expect_accurate(const Gradients& gradients, const Problem& problem, const BackwardInputs& inputs);

}  // namespace ringattn::test
