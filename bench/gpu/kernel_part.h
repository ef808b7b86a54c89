// Forward and backward of every chapter of the CUDA kernels against the oracle.
#pragma once
#include <functional>
#include <memory>

#include "bench/gpu/device.h"
#include "bench/gpu/kernel_cases.h"
#include "bench/gpu/lines.h"
#include "kernels/kernel.h"

namespace ringattn::acceptance {

using MakeKernel = std::function<std::unique_ptr<Kernel>(const KernelConfig& config, void* stream)>;

struct ForwardResult {
  std::vector<std::byte> out, lse;
  friend bool operator==(const ForwardResult&, const ForwardResult&) = default;
};
struct BackwardResult {
  std::vector<std::byte> dq, dk, dv;
  friend bool operator==(const BackwardResult&, const BackwardResult&) = default;
};
// Block after block on a stream of their own, into outputs and blocks full of NaN. backward is given the
// oracle's out and lse, so that it does not depend on forward.
ForwardResult run_forward(Kernel& kernel, const KernelCase& problem, const Inputs& inputs,
                          const Stream& stream);
BackwardResult run_backward(Kernel& kernel, const KernelCase& problem, const Inputs& inputs,
                            const Truth& truth, const Stream& stream);

// One check for each chapter and pass of a problem: near the oracle, and the same bits in a second run.
void check_kernel(const KernelCase& problem, const std::vector<std::string>& chapters, const MakeKernel& make,
                  Lines& lines);

// All of them. Throws DeviceError if the device is lost on the way.
void check_kernels(Extent extent, const std::vector<std::string>& chapters, const MakeKernel& make,
                   Lines& lines);

}  // namespace ringattn::acceptance
