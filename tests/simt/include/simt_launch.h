// Kernel launch of the harness: what `kernel<<<grid, block, smem, stream>>>(args...)` becomes.
#pragma once
#include <functional>
#include <tuple>

#include "tests/simt/runtime.h"

namespace simt {

// Begins the blocks in shuffled order. As many as a seed draws, config().resident at most, are at work at
// once and take turns (config().workers > 1: on several OS threads): a block may wait for those that have
// begun before it, and for no others.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& kernel);

// Enqueues. The arguments are copied now, as a real launch does.
void enqueue_kernel(const void* function, dim3 grid, dim3 block, std::size_t shared_bytes,
                    cudaStream_t stream, std::function<void()> kernel);

template <class... P, class... A>
void launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
            A&&... args) {
  enqueue_kernel(
      reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, stream,
      [kernel, packed = std::tuple<P...>(std::forward<A>(args)...)] { std::apply(kernel, packed); });
}

}  // namespace simt
