#include "comm/nccl_registration.h"

#include <cuda_runtime.h>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)

// So that a program built with a newer NCCL starts with an older one, which knows none of these.
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister

namespace ringattn {
namespace {

bool offered() {
  int version = 0;
  return ncclGetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 19, 1);
}

}  // namespace

std::byte* nccl_allocate(std::size_t bytes) {
  void* data = nullptr;
  if (!offered()) return nullptr;
  if (ncclMemAlloc(&data, bytes) == ncclSuccess) return static_cast<std::byte*>(data);
  cudaGetLastError();  // where there is no memory: others are asked next, and find what they find
  return nullptr;
}

void nccl_free(std::byte* data) noexcept { ncclMemFree(data); }

void* nccl_register(ncclComm_t comm, std::byte* data, std::size_t bytes) {
  void* handle = nullptr;
  return ncclCommRegister(comm, data, bytes, &handle) == ncclSuccess ? handle : nullptr;
}

void nccl_deregister(ncclComm_t comm, void* handle) noexcept { ncclCommDeregister(comm, handle); }

}  // namespace ringattn

#else

namespace ringattn {

std::byte* nccl_allocate(std::size_t) { return nullptr; }
void nccl_free(std::byte*) noexcept {}
void* nccl_register(ncclComm_t, std::byte*, std::size_t) { return nullptr; }
void nccl_deregister(ncclComm_t, void*) noexcept {}

}  // namespace ringattn

#endif
