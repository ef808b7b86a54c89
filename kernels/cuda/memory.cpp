#include "kernels/cuda/memory.h"

#include <algorithm>
#include <string>

#include "kernels/cuda/device_error.h"
#include "src/error.h"

namespace ringattn::cuda {

void check_cuda(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // said here, so it need not be found again by the next call
  throw DeviceError(what + ": " + cudaGetErrorString(status));
}

namespace {

std::byte* allocate_async(std::size_t bytes, cudaStream_t stream) {
  void* p = nullptr;
  const cudaError_t status = cudaMallocAsync(&p, bytes, stream);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory("could not allocate " + std::to_string(bytes) + " bytes of device memory");
  }
  check_cuda(status, "allocation of " + std::to_string(bytes) + " bytes of device memory");
  return static_cast<std::byte*>(p);
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMallocHost(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw OutOfMemory("could not allocate " + std::to_string(bytes) + " bytes of pinned host memory");
  }
  check_cuda(status, "allocation of " + std::to_string(bytes) + " bytes of pinned host memory");
  return static_cast<std::byte*>(p);
}

}  // namespace

DeviceMemory::DeviceMemory(std::size_t bytes, cudaStream_t stream)
    : data_(bytes > 0 ? allocate_async(bytes, stream) : nullptr, FreeDevice{stream}), size_(bytes) {}

Buffer DeviceMemory::release() && {
  const FreeDevice free = data_.get_deleter();
  return {.data = {data_.release(), [free](std::byte* p) { free(p); }}, .size = size_};
}

Uploads::~Uploads() {
  try {
    for (const Slot& slot : slots_)
      if (slot.used) cudaEventSynchronize(slot.copied.get());
  } catch (...) {
    // The test harness reports faults of a device as exceptions, and this may run because of one.
  }
}

bool Uploads::free(const Slot& slot) {
  return !slot.used || cudaEventQuery(slot.copied.get()) == cudaSuccess;
}

std::span<std::byte> Uploads::room(std::size_t bytes) {
  // Too small ones go, so that there are never more than copies under way.
  std::erase_if(slots_, [&](const Slot& slot) { return slot.size < bytes && free(slot); });
  const auto found =
      std::ranges::find_if(slots_, [&](const Slot& slot) { return slot.size >= bytes && free(slot); });
  filled_ = static_cast<std::size_t>(found - slots_.begin());
  bytes_ = bytes;
  if (found == slots_.end()) {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    Slot slot;
    slot.copied.reset(event);
    slot.data.reset(allocate_pinned(bytes));
    slot.size = bytes;
    slots_.push_back(std::move(slot));
  }
  return {slots_[filled_].data.get(), bytes};
}

DeviceMemory Uploads::send() {
  Slot& slot = slots_[filled_];
  DeviceMemory memory(bytes_, stream_);
  check_cuda(cudaMemcpyAsync(memory.data(), slot.data.get(), bytes_, cudaMemcpyHostToDevice, stream_),
             "copy of " + std::to_string(bytes_) + " bytes to the device");
  check_cuda(cudaEventRecord(slot.copied.get(), stream_), "cudaEventRecord");
  slot.used = true;
  return memory;
}

}  // namespace ringattn::cuda
