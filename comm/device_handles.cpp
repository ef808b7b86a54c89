#include "comm/device_handles.h"

#include "src/error.h"

namespace ringattn {

void check_cuda(cudaError_t code, const std::string& where, const char* what) {
  if (code == cudaSuccess) return;
  throw DeviceError(where + ": " + what + ": " + cudaGetErrorString(code));
}

TransferStream::TransferStream() {
  int lowest = 0, highest = 0;
  check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "TransferStream",
             "cudaDeviceGetStreamPriorityRange");
  check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest), "TransferStream",
             "cudaStreamCreateWithPriority");
}

TransferStream::~TransferStream() { cudaStreamDestroy(stream_); }

Event::Event() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "Event", "cudaEventCreateWithFlags");
}

Event::~Event() { cudaEventDestroy(event_); }

void Event::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "Event", "cudaEventRecord");
}

void Event::hold_back(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "Event", "cudaStreamWaitEvent");
}

bool Event::passed() const {
  const cudaError_t state = cudaEventQuery(event_);
  if (state == cudaErrorNotReady) return false;
  check_cuda(state, "Event", "cudaEventQuery");
  return true;
}

void Event::await() const noexcept { cudaEventSynchronize(event_); }

PinnedBuffer::PinnedBuffer(std::size_t bytes) : size_(bytes) {
  void* data = nullptr;
  if (cudaHostAlloc(&data, bytes, cudaHostAllocPortable) != cudaSuccess) {
    throw OutOfMemory("cannot allocate " + std::to_string(bytes) + " bytes of pinned host memory");
  }
  data_ = static_cast<std::byte*>(data);
}

PinnedBuffer::~PinnedBuffer() { cudaFreeHost(data_); }

}  // namespace ringattn
