#include "src/backend.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "src/refuse.h"

namespace ringattn {

std::string_view name_of(Backend backend) { return backend == Backend::cpu ? "cpu" : "cuda"; }

Backend backend_from_name(std::string_view name) {
  for (const Backend backend : {Backend::cpu, Backend::cuda})
    if (name == name_of(backend)) return backend;
  refuse("backend", quoted(name), "allowed are cpu and cuda");
}

std::unique_ptr<Kernel> make_kernel(Backend backend, const KernelConfig& config, void* stream) {
  return backend == Backend::cuda ? make_cuda_kernel(config, stream) : make_cpu_kernel(config);
}

std::size_t block_bytes(Backend backend, const KernelConfig& config, index_t k_rows) {
  return backend == Backend::cuda ? cuda_block_bytes(config.shape, config.dtype, k_rows)
                                  : cpu_block_bytes(config.shape, config.dtype, k_rows);
}

std::size_t gradient_bytes(Backend backend, const KernelConfig& config, index_t k_rows) {
  return backend == Backend::cuda ? cuda_gradient_bytes(config.shape, k_rows)
                                  : cpu_gradient_bytes(config.shape, k_rows);
}

std::size_t workspace_bytes(Backend backend, const KernelConfig& config, Pass pass) {
  return backend == Backend::cuda ? cuda_workspace_bytes(config, pass) : cpu_workspace_bytes(config, pass);
}

}  // namespace ringattn
