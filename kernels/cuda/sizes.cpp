// What the kernel holds and moves; the same in a build without CUDA, where one can plan for it as well.
#include "kernels/check.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/layout.h"

namespace ringattn {

std::size_t cuda_block_bytes(const HeadShape& shape, DType dtype, index_t k_rows) {
  check_shape(shape);
  check_not_negative("k_rows", k_rows);
  return cuda::block_layout(shape, dtype, k_rows).bytes;
}

std::size_t cuda_gradient_bytes(const HeadShape& shape, index_t k_rows) {
  check_shape(shape);
  check_not_negative("k_rows", k_rows);
  return cuda::gradient_layout(shape, k_rows).bytes;
}

std::size_t cuda_workspace_bytes(const KernelConfig& config, Pass pass) {
  check_config(config);
  return cuda::WorkspaceLayout(config.shape, config.dtype, config.q_rows).bytes(pass);
}

}  // namespace ringattn
