#include "kernels/cuda/devices.h"

#include <cuda_runtime.h>

#include <cstdio>

namespace ringattn {
namespace {

std::string uuid_text(const cudaDeviceProp& properties) {
  std::string text = "GPU-";
  for (const char byte : properties.uuid.bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
    text += two;
  }
  return text;
}

std::string pci_text(const cudaDeviceProp& properties) {
  char text[32];
  std::snprintf(text, sizeof text, "%04x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID), static_cast<unsigned>(properties.pciDeviceID));
  return text;
}

// CUDA 13 has no clocks among the properties. A driver that does not tell one leaves 0.
double kilohertz(cudaDeviceAttr attribute, int device) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess) {
    cudaGetLastError();
    return 0;
  }
  return 1e3 * value;
}

CudaDevice describe(int index) {
  CudaDevice device{.index = index};
  cudaDeviceProp properties;
  if (const cudaError_t status = cudaGetDeviceProperties(&properties, index); status != cudaSuccess) {
    cudaGetLastError();
    device.unusable = cudaGetErrorString(status);
    return device;
  }
  device.name = properties.name;
  device.major = properties.major;
  device.minor = properties.minor;
  device.multiprocessors = properties.multiProcessorCount;
  device.memory_bytes = properties.totalGlobalMem;
  device.clock_hz = kilohertz(cudaDevAttrClockRate, index);
  device.memory_clock_hz = kilohertz(cudaDevAttrMemoryClockRate, index);
  device.memory_bus_bits = properties.memoryBusWidth;
  device.uuid = uuid_text(properties);
  device.pci = pci_text(properties);
  int pools = 0;
  if (cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index) != cudaSuccess)
    cudaGetLastError();
  if (device.major < 8) {
    device.unusable = "compute capability " + device.capability() + ", 8.0 or later is needed";
  } else if (pools == 0) {
    device.unusable = "no memory in the order of a stream (cudaMallocAsync)";
  }
  return device;
}

// The version of the driver is 0 where there is none; the runtime then has words of its own, too.
std::string without_devices(cudaError_t status, int driver_version) {
  cudaGetLastError();
  const std::string words = cudaGetErrorString(status);
  return driver_version == 0 ? "no CUDA driver: " + words : words;
}

}  // namespace

CudaMachine find_cuda_devices() {
  CudaMachine machine;
  if (cudaDriverGetVersion(&machine.driver_version) != cudaSuccess) cudaGetLastError();
  if (cudaRuntimeGetVersion(&machine.runtime_version) != cudaSuccess) cudaGetLastError();
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    machine.unavailable = without_devices(status, machine.driver_version);
    return machine;
  }
  if (count == 0) machine.unavailable = "the driver shows no device";
  bool usable = false;
  for (int index = 0; index < count; ++index) {
    machine.devices.push_back(describe(index));
    const CudaDevice& device = machine.devices.back();
    usable = usable || device.unusable.empty();
    if (!device.unusable.empty())
      machine.unavailable += (machine.unavailable.empty() ? "device " : "; device ") + std::to_string(index) +
                             " (" + device.name + "): " + device.unusable;
  }
  if (usable) machine.unavailable.clear();
  return machine;
}

}  // namespace ringattn
