// Devices and errors of the stand-in runtime.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/simt/memory.h"
#include "tests/simt/runtime.h"
#include "tests/simt/tma.h"

namespace {

thread_local cudaError_t last_error = cudaSuccess;

bool exists(int device) { return simt::config().driver && device >= 0 && device < simt::config().devices; }

}  // namespace

namespace simt {
cudaError_t noted(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}
}  // namespace simt

using simt::noted;

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidMemcpyDirection:
      return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "cudaErrorPeerAccessAlreadyEnabled";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorPeerAccessUnsupported:
      return "peer access is not supported between these two devices";
    case cudaErrorPeerAccessAlreadyEnabled:
      return "peer access is already enabled";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
  }
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

// CUDA's answers: a driver that is missing is version 0, and too old for every runtime.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::config().driver ? simt::config().devices : 0;
  if (!simt::config().driver) return noted(cudaErrorInsufficientDriver);
  return noted(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return noted(cudaErrorInvalidDevice);
  return simt::current_device = device, cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) { return *device = simt::current_device, cudaSuccess; }

// Figures of an A100 or an H200, by the compute capability that the test asks for.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return noted(cudaErrorInvalidDevice);
  const bool hopper = simt::config().compute_capability >= 90;
  *p = {};
  std::strcpy(p->name, hopper ? "simt sm_90" : "simt sm_80");
  p->totalGlobalMem = simt::config().device_bytes;
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = (hopper ? 227 : 163) * 1024;
  p->sharedMemPerMultiprocessor = (hopper ? 228 : 164) * 1024;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->major = simt::config().compute_capability / 10;
  p->minor = simt::config().compute_capability % 10;
  p->multiProcessorCount = hopper ? 132 : 108;
  p->l2CacheSize = (hopper ? 50 : 40) * 1024 * 1024;
  p->memoryBusWidth = hopper ? 6144 : 5120;
  p->pciBusID = device;
  p->uuid.bytes[0] = static_cast<char>(0xF0);  // a byte above 127 among them
  p->uuid.bytes[15] = static_cast<char>(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t e = cudaGetDeviceProperties(&p, device); e != cudaSuccess) return e;
  switch (attribute) {
    case cudaDevAttrClockRate:
      *value = p.major >= 9 ? 1980000 : 1410000;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMemoryClockRate:
      *value = p.major >= 9 ? 3201000 : 1512000;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = p.memoryBusWidth;
      break;
    case cudaDevAttrL2CacheSize:
      *value = p.l2CacheSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      return noted(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  return *version = simt::config().driver ? 13000 : 0, cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = 13000, cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  if (found) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  simt::System& system = simt::System::get();
  simt::Device& d = system.device(simt::current_device);
  return simt::guarded([&] {
    system.drain(d, nullptr, [&] {
      return std::all_of(d.streams.begin(), d.streams.end(), [](auto& s) { return simt::idle(*s); });
    });
    system.locked([&] {
      for (auto& s : d.streams) simt::join(simt::host_clock, s->actor.clock);
    });
    return cudaSuccess;
  });
}
