// Between the caller's tensors and the packed layouts, spread over threads.
#pragma once
#include "kernels/cpu/packed.h"
#include "kernels/cpu/target.h"

namespace ringattn::cpu {

// Fills the groups' q with turned queries times `factor` (see Scaling) and resets o and the row state. bf16
// become pairs where the target has products of them and those are as good as those of widened numbers.
void pack_queries(const Target& target, const ConstTensorView& q, const Rotation& rotation, double factor,
                  const StateLayout& layout, std::byte* state, int threads);

// Fills every byte of a block. Rotation::angles is called once for each row and batch.
void pack_block(const Target& target, const ConstTensorView& k, const ConstTensorView& v,
                const Rotation& rotation, const BlockLayout& layout, std::byte* block, int threads);

// Normalises and rounds the groups' o into `out`, and the logarithms of the sums into `lse` unless it is
// null.
void unpack_output(const Target& target, const StateLayout& layout, std::byte* state, float slope,
                   const TensorView& out, const LseView& lse, int threads);

}  // namespace ringattn::cpu
