#include "bench/gpu/device.h"

#include "src/error.h"

namespace ringattn::acceptance {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // said here, so it need not be found again by the next call
  throw DeviceError(std::string(call) + ": " + cudaGetErrorString(status));
}

void copy_to_device(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
Stream::~Stream() {
  try {
    cudaStreamSynchronize(stream_);  // memory that is still to be freed in its order
  } catch (...) {
    // The harness of tests/simt reports faults of a device as exceptions, and this may run because of one.
  }
  cudaStreamDestroy(stream_);
}
void Stream::wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

DeviceBytes::DeviceBytes(std::size_t bytes) : DeviceBytes(std::vector<std::byte>(bytes, std::byte{0xFF})) {}
DeviceBytes::DeviceBytes(const std::vector<std::byte>& host) : size_(host.size()) {
  if (size_ == 0) return;
  check(cudaMalloc(&data_, size_), "cudaMalloc");
  try {
    copy_to_device(data_, host.data(), size_);
  } catch (...) {
    cudaFree(data_);
    throw;
  }
}
DeviceBytes::~DeviceBytes() { cudaFree(data_); }

std::vector<std::byte> DeviceBytes::host() const {
  std::vector<std::byte> bytes(size_);
  if (size_ > 0) check(cudaMemcpy(bytes.data(), data_, size_, cudaMemcpyDeviceToHost), "cudaMemcpy");
  return bytes;
}

bool device_lost() { return cudaDeviceSynchronize() != cudaSuccess; }

std::vector<DeviceFacts> devices(std::string& why) {
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    why = cudaGetErrorString(status);
    return {};
  }
  std::vector<DeviceFacts> facts;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    facts.push_back({.name = properties.name,
                     .capability = 10 * properties.major + properties.minor,
                     .processors = properties.multiProcessorCount,
                     .memory = properties.totalGlobalMem});
  }
  if (facts.empty()) why = "the runtime counts no device";
  return facts;
}

}  // namespace ringattn::acceptance
