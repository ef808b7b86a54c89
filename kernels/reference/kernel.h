// The kernel interface in plain float64 loops: to test the ring without SIMD, threads or packed layouts.
#pragma once
#include <memory>

#include "kernels/kernel.h"

namespace ringattn {

// One thread whatever config.threads says, any head_dim. A block is k then v as dense float64 arrays
// [batch, k_rows, num_heads_kv, dim], so that turning and travelling round nothing; its gradients likewise,
// for all of which attend_backward waits at once. config.isa must be "auto". Throws UsageError naming a value
// that cannot be used.
std::unique_ptr<Kernel> make_reference_kernel(const KernelConfig& config);

}  // namespace ringattn
