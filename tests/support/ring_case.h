// A whole attention problem for tests: global tensors in double, the ring's answer put together from all
// ranks, the oracle's answer, and the answer of a naive implementation in the same dtype, whose error sets
// the bound.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "src/attention.h"

namespace ringattn::test {

// Dense [batch, seqlen, heads, dim], values already representable in the problem's dtype.
struct Tensor {
  std::array<index_t, 4> shape{};
  std::vector<double> data{};

  Tensor() = default;
  explicit Tensor(std::array<index_t, 4> s, double fill = 0);
  double& at(index_t b, index_t row, index_t head, index_t d);
  double at(index_t b, index_t row, index_t head, index_t d) const;
};

struct Inputs {
  Tensor q, k, v;
  Tensor dout{};  // gradient of the loss with respect to out, shaped like it
};
std::array<index_t, 4> q_shape(const Problem& problem);
std::array<index_t, 4> k_shape(const Problem& problem);
std::array<index_t, 4> v_shape(const Problem& problem);
std::array<index_t, 4> out_shape(const Problem& problem);

// Unit normal times `spread`, rounded to the dtype.
Inputs random_inputs(const Problem& problem, unsigned seed, double spread = 1);
// The generator G of the fault cases: k/64 in [-1, 1), exact in every dtype.
Inputs case_inputs(const Problem& problem);
// "V = j" of the fault cases: q = k = 0 and v[j] = j, so that a row's output is the mean of its visible keys;
// dout = 1.
Inputs mean_inputs(const Problem& problem);

struct Answer {
  Tensor out;                 // [batch, seqlen_q, num_heads, head_dim_v]
  std::vector<double> lse{};  // [batch, num_heads, seqlen_q]
};

using Visible = std::function<bool(index_t i, index_t j)>;
// From the definition, in double: no plan, no layout, no tiles. `visible` is a formula written in the test.
Answer oracle(const Problem& problem, const Inputs& in, const Visible& visible);
// The textbook in the problem's dtype: scores, probabilities and output rounded to it, sums in fp32.
Answer naive(const Problem& problem, const Inputs& in, const Visible& visible);

// q and k turned by their global positions, in double.
Inputs rotated(const Problem& problem, const Inputs& in);
// The transpose of that: gradients with respect to turned q and k become those with respect to q and k.
void turn_back(const Problem& problem, Tensor& dq, Tensor& dk);

// The rows at these positions in the dtype, dense.
std::vector<std::byte> shard_of(const Tensor& x, const std::vector<index_t>& positions, DType t);

// The rings that a fault case is run on: every one of 1 to 5 ranks in every layout, or what stands for them
// where a ring is executed slowly.
struct RingShape {
  int ranks;
  LayoutKind layout;
};
std::vector<RingShape> ring_shapes(const Problem& problem);
inline std::string text(const RingShape& shape) {
  return std::to_string(shape.ranks) + " ranks, " + std::string(name_of(shape.layout));
}

// This rank's part of the ring: local rows are cut out, outputs are poisoned with NaN, the result lands in
// the rows of `answer` that this rank owns. `answer` must be shaped by empty_answer().
Answer empty_answer(const Problem& problem);
void run_rank(const std::shared_ptr<Communicator>& comm, const Problem& problem, const Sharding& sharding,
              const RingOptions& options, const Inputs& in, Answer& answer);
// All ranks as threads.
Answer run_threads(const Problem& problem, const Sharding& sharding, const Inputs& in,
                   const RingOptions& options = {.threads = 1});
inline Answer run_threads(const Problem& problem, LayoutKind layout, int ranks, const Inputs& in) {
  return run_threads(problem, Sharding::make(layout, problem.seqlen_q(), problem.seqlen_k(), ranks), in);
}

// Largest |a - b|; infinite if one is NaN (or infinite) and the other is not.
double max_error(const std::vector<double>& a, const std::vector<double>& b);
double max_magnitude(const std::vector<double>& a);
bool same_bits(const std::vector<double>& a, const std::vector<double>& b);  // NaN equals NaN

}  // namespace ringattn::test
