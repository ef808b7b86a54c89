// Gradients of a whole attention problem for tests: the ring's, put together from all ranks, the oracle's,
// and those of a naive implementation in the same dtype, whose error sets the bound.
#pragma once
#include "tests/support/rank_tensors.h"

namespace ringattn::test {

// From the definition, in double, through RoPE: the gradients of sum(dout * out) with respect to q, k and v
// as they are before they turn. `forward` is the oracle's, too.
GradientAnswer oracle_gradients(const Problem& problem, const Inputs& in, const Visible& visible);
// The textbook in the problem's dtype, as a framework without a fused kernel computes it: turned q and k, P,
// dP, dS and gradients are stored in it, products are summed in fp32. A softmax of its own, no lse.
GradientAnswer naive_gradients(const Problem& problem, const Inputs& in, const Visible& visible);

// This rank's part: forward, then backward into poisoned gradients, by one object. Expects that backward only
// reads q, k, v, dout, out and lse. `answer` must be shaped by empty_gradients().
void run_rank_gradients(const std::shared_ptr<Communicator>& comm, const Problem& problem,
                        const Sharding& sharding, const RingOptions& options, const Inputs& in,
                        GradientAnswer& answer);
// All ranks as threads.
GradientAnswer run_threads_gradients(const Problem& problem, const Sharding& sharding, const Inputs& in,
                                     const RingOptions& options = {.threads = 1});
inline GradientAnswer run_threads_gradients(const Problem& problem, LayoutKind layout, int ranks,
                                            const Inputs& in) {
  return run_threads_gradients(problem, Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), ranks),
                               in);
}

// The bits of dq, dk and dv (NaN equals NaN).
bool same_gradients(const GradientAnswer& a, const GradientAnswer& b);

// The accuracy rule of the design: at most 3 times the error of the naive gradients. Floors, since a naive
// result may be right by luck (one visible key: dP - delta is exactly 0 there). What is added up may cancel,
// so they refer to the sum of its absolute values: 2 units of fp32, and one more for each unit of |lse|,
// whose rounding is in every p. A result in 16 bits has its own rounding besides.
struct GradientBound {
  double dq, dk, dv;
};
GradientBound gradient_bound(const Problem& problem, const Inputs& in, const Visible& visible,
                             const GradientAnswer& exact);

}  // namespace ringattn::test
