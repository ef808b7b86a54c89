// Backward's rows and sums between the caller's tensors and the packed layouts, spread over threads.
#pragma once
#include "kernels/cpu/backward_layout.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

// What load_rows takes.
struct RowTensors {
  const ConstTensorView &q, &dout, &out;
  const ConstLseView& lse;
};

// Fills the groups: q turned, times `factor` (see Scaling), and dq = 0. The calling thread polls.
void pack_rows(const Target& target, const RowTensors& tensors, const Rotation& rotation, double factor,
               const RowsLayout& layout, std::byte* state, int threads, const Poll& poll);

// dq times `factor`, turned back and rounded.
void unpack_rows(const Target& target, const RowsLayout& layout, std::byte* state, const TensorView& dq,
                 double factor, const Rotation& rotation, int threads);

// dK times `factor`, turned back, and dV, rounded.
void unpack_gradients(const Target& target, const GradientLayout& layout, const std::byte* gradients,
                      const TensorView& dk, const TensorView& dv, double factor, const Rotation& rotation,
                      int threads);

}  // namespace ringattn::cpu
