// Blocked flash attention on NVIDIA GPUs. Tensors, blocks and gradients are device memory; everything runs on
// the caller's stream and in its order.
#pragma once
#include <memory>

#include "kernels/kernel.h"

namespace ringattn {

// Whether this build holds these kernels. Without them make_cuda_kernel throws DeviceError.
bool cuda_built();

// `stream` is a cudaStream_t, of the device that is current here and in every later call; it outlives the
// kernel. config.threads form the cosines and sines of rotations on the host. What differs from the CPU
// kernel:
//  - Calls return when the work is in the stream. The host waits nowhere but for GradientBlock::arrived, if
//  it
//    is not empty, and in the destructor; where pinned memory has to be made, the driver may wait for a
//    while, which happens when a call sends more (tiles, cosines) than any before it whose copy is done.
//  - Tensors and blocks stay what they are until the stream has passed the call. Rotation::angles is called
//    before the call returns.
//  - allocate() gives memory that is zeroed and freed in the order of the stream: another stream that uses it
//    has to wait for an event of this one first, and this one for it before the memory is freed.
//  - `poll` is called once or twice a call.
// config.isa chooses the chapter: "plain"; "sm_80" (tensor cores, bf16 and f16, head_dim up to 256, compute
// capability 8.0 and later); "auto", the fastest that the device and the configuration allow. It is named by
// name(): "cuda/plain".
// Throws UsageError, OutOfMemory if the state cannot be held, and DeviceError for all else that the CUDA
// runtime reports, then or about earlier work. head_dim above 256 needs up to 163 KiB of shared memory a
// block (sm_80, sm_90); DeviceError where the device has less.
std::unique_ptr<Kernel> make_cuda_kernel(const KernelConfig& config, void* stream);

// What that kernel would hold and move, without making it. Workspace leaves out what a call needs for as long
// as it runs: its tiles, cut to groups of rows, its cosines and sines, and the partial sums of few queries
// whose keys are split (at most 2 blocks of threads a multiprocessor, 128 rows of head_dim_v + 2 floats
// each). Backward of sm_90a up to head_dim 128: 4 bytes for 64 queries of a head and, where sums of other
// ranks are on their way, a second block of gradients (cuda_gradient_bytes).
std::size_t cuda_block_bytes(const HeadShape& shape, DType dtype, index_t k_rows);
std::size_t cuda_gradient_bytes(const HeadShape& shape, index_t k_rows);
std::size_t cuda_workspace_bytes(const KernelConfig& config, Pass pass = Pass::forward);

}  // namespace ringattn
