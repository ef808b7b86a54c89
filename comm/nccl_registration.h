// What NCCL offers since 2.19.1: memory that it moves blocks within as they lie, without copies of its own.
// In an older one, at compile time or at run time, every answer is no. Internal to comm/.
#pragma once
#include <nccl.h>

#include <cstddef>

namespace ringattn {

// Device memory of the current device that NCCL can register; other memory it takes as well, and then copies
// all the same (that of cudaMallocAsync always, that of cudaMalloc unless the user insists). Null if there is
// none.
std::byte* nccl_allocate(std::size_t bytes);
// At once, whatever streams have still to do with it. The current device does not matter.
void nccl_free(std::byte* data) noexcept;

// A handle, null if NCCL refuses. Nothing waits for peers: NCCL shows them the memory at its first transfer.
void* nccl_register(ncclComm_t comm, std::byte* data, std::size_t bytes);
void nccl_deregister(ncclComm_t comm, void* handle) noexcept;

}  // namespace ringattn
