#include "kernels/cuda/device_stream.h"

#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/device_error.h"
#include "kernels/cuda/memory.h"

namespace ringattn {
namespace {

using cuda::check_cuda;

cudaStream_t raw(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

// Without the legacy default stream: a library that uses it must not hold this one back.
DeviceStream::DeviceStream(int device) {
  check_cuda(cudaSetDevice(device), "device " + std::to_string(device));
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = stream;
}

// CUDA keeps the stream until what it holds has ended. The test harness reports a fault of the device as an
// exception, and this may run because of one.
DeviceStream::~DeviceStream() {
  try {
    cudaStreamDestroy(raw(stream_));
  } catch (...) {
  }
}

Buffer DeviceStream::allocate(std::size_t bytes) { return cuda::DeviceMemory(bytes, raw(stream_)).release(); }

void DeviceStream::upload(std::span<const std::byte> host, std::span<std::byte> device) {
  if (host.empty()) return;
  check_cuda(cudaMemcpyAsync(device.data(), host.data(), host.size(), cudaMemcpyHostToDevice, raw(stream_)),
             "copy of " + std::to_string(host.size()) + " bytes to the device");
  wait();
}

void DeviceStream::download(std::span<const std::byte> device, std::span<std::byte> host) {
  if (device.empty()) return;
  check_cuda(cudaMemcpyAsync(host.data(), device.data(), device.size(), cudaMemcpyDeviceToHost, raw(stream_)),
             "copy of " + std::to_string(device.size()) + " bytes from the device");
  wait();
}

void DeviceStream::wait() { check_cuda(cudaStreamSynchronize(raw(stream_)), "cudaStreamSynchronize"); }

StreamMark::StreamMark() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  event_ = event;
}

StreamMark::~StreamMark() {
  try {
    cudaEventDestroy(event_of(event_));
  } catch (...) {
  }
}

void StreamMark::set(const DeviceStream& stream) {
  check_cuda(cudaEventRecord(event_of(event_), raw(stream.get())), "cudaEventRecord");
}

double StreamMark::seconds_since(const StreamMark& earlier) const {
  check_cuda(cudaEventSynchronize(event_of(event_)), "cudaEventSynchronize");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, event_of(earlier.event_), event_of(event_)),
             "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

std::uint64_t free_device_bytes() {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

}  // namespace ringattn
