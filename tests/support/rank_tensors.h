// One rank's tensors in the problem's dtype for forward and backward: cut out of a whole problem, outputs
// poisoned, and put back into a whole answer.
#pragma once
#include <cstddef>
#include <vector>

#include "tests/support/ring_case.h"

namespace ringattn::test {

// The whole answer of a forward and a backward call.
struct GradientAnswer {
  Answer forward{};
  Tensor dq{}, dk{}, dv{};  // shapes of q, k and v
};
GradientAnswer empty_gradients(const Problem& problem);  // all NaN

// Views may be changed before a call, to strided ones or to wrong ones.
class RankTensors {
 public:
  RankTensors(const Problem& problem, const Sharding& sharding, int rank, const Inputs& in);

  Timing forward(RingAttention& ring) { return ring.forward(q, k, v, out, lse); }
  Timing backward(RingAttention& ring) { return ring.backward(inputs(), gradients()); }
  BackwardInputs inputs() const { return {dout, q, k, v, as_const(out), as_const(lse)}; }
  Gradients gradients() const { return {dq, dk, dv}; }

  // NaN in every byte of the gradients.
  void poison_gradients();
  // What backward() only reads, byte by byte.
  std::vector<std::vector<std::byte>> input_bytes() const { return {q_, k_, v_, dout_, out_, lse_}; }
  std::vector<std::vector<std::byte>> gradient_bytes() const { return {dq_, dk_, dv_}; }
  // Writes this rank's rows, from the tensors themselves and not through views that were changed.
  void collect(GradientAnswer& answer) const;

  ConstTensorView q, k, v, dout;
  TensorView out, dq, dk, dv;
  LseView lse;

 private:
  DType dtype_;
  index_t heads_ = 0;
  std::vector<index_t> q_positions_, k_positions_;
  std::vector<std::byte> q_, k_, v_, dout_, out_, lse_, dq_, dk_, dv_;
};

}  // namespace ringattn::test
