// The kernels that a ring can compute with, behind one choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "kernels/kernel.h"

namespace ringattn {

enum class Backend : std::uint8_t { cpu, cuda };
std::string_view name_of(Backend backend);         // "cpu", "cuda"
Backend backend_from_name(std::string_view name);  // throws UsageError naming the value and the allowed ones

// Where a backend's tensors and blocks lie.
constexpr MemorySpace space_of(Backend backend) {
  return backend == Backend::cuda ? MemorySpace::cuda : MemorySpace::host;
}

// stream: the cudaStream_t of cuda, see kernels/cuda/cuda.h. Throws UsageError, OutOfMemory, and DeviceError
// if this build or this machine cannot compute so.
std::unique_ptr<Kernel> make_kernel(Backend backend, const KernelConfig& config, void* stream);

// What such a kernel holds and moves, in any build.
std::size_t block_bytes(Backend backend, const KernelConfig& config, index_t k_rows);
std::size_t gradient_bytes(Backend backend, const KernelConfig& config, index_t k_rows);
std::size_t workspace_bytes(Backend backend, const KernelConfig& config, Pass pass);

}  // namespace ringattn
