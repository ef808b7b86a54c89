// The subset of the CUDA runtime API that the library calls.
//
// Misuse of the API that CUDA reports as a status code is reported so here. What a GPU would forgive most of
// the time, a race or a read past the end, surfaces as a simt::Fault exception from the call that made the
// work run (cudaStreamSynchronize and friends): a status code could be overlooked. While another exception is
// on its way up, as in destructors, such a call returns cudaErrorLaunchFailure instead.
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <exception>

#include "tests/simt/fault.h"
#include "tests/simt/stream.h"

// Last parameter of everything that can be at fault: the caller's line, for the report.
#define SIMT_WHERE ::simt::Where where = ::simt::Where::current()

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorLaunchFailure = 719,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
enum cudaDeviceAttr {
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115
};
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0,
  cudaDriverEntryPointSymbolNotFound = 1,
  cudaDriverEntryPointVersionNotSufficent = 2  // the spelling is CUDA's
};
enum cudaMemLocationType { cudaMemLocationTypeInvalid = 0, cudaMemLocationTypeDevice = 1 };
enum cudaMemAccessFlags {
  cudaMemAccessFlagsProtNone = 0,
  cudaMemAccessFlagsProtRead = 1,
  cudaMemAccessFlagsProtReadWrite = 3
};
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  cudaMemAccessFlags flags;
};
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
inline constexpr unsigned long long cudaEnableDefault = 0;

using cudaStream_t = simt::Stream*;
using cudaEvent_t = simt::Event*;
namespace simt {
struct MemPool;
}
using cudaMemPool_t = simt::MemPool*;

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
  int regsPerBlock, warpSize, maxThreadsPerBlock, major, minor, multiProcessorCount, l2CacheSize,
      memoryBusWidth;
  int pciDomainID, pciBusID, pciDeviceID;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};

// ---------------------------------------------------------------- errors, devices
const char* cudaGetErrorName(cudaError_t e);
const char* cudaGetErrorString(cudaError_t e);
cudaError_t cudaGetLastError();  // of this thread; forgets it
cudaError_t cudaPeekAtLastError();

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found);

// ---------------------------------------------------------------- memory
cudaError_t cudaMalloc(void** p, std::size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s, SIMT_WHERE);
cudaError_t cudaFreeAsync(void* p, cudaStream_t s, SIMT_WHERE);
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned flags);
cudaError_t cudaMallocHost(void** p, std::size_t bytes);
cudaError_t cudaFreeHost(void* p);
template <class T>
cudaError_t cudaMalloc(T** p, std::size_t n) {
  return cudaMalloc(reinterpret_cast<void**>(p), n);
}
template <class T>
cudaError_t cudaMallocAsync(T** p, std::size_t n, cudaStream_t s, SIMT_WHERE) {
  return cudaMallocAsync(reinterpret_cast<void**>(p), n, s, where);
}
template <class T>
cudaError_t cudaMallocHost(T** p, std::size_t n) {
  return cudaMallocHost(reinterpret_cast<void**>(p), n);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

// Waits for no stream: the library's streams are non-blocking, so a plain copy is not a fence.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, SIMT_WHERE);
// From pageable memory the bytes are taken at once; to pageable memory the call waits for the copy. Memory of
// a device that the stream's own may not touch is a fault, though CUDA may find a way by the host: who relies
// on that says so with cudaMemcpyPeerAsync, which is right either way.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t s,
                            SIMT_WHERE);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t s,
                              SIMT_WHERE);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, std::size_t n,
                                cudaStream_t s, SIMT_WHERE);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t n, cudaStream_t s, SIMT_WHERE);

// ---------------------------------------------------------------- other devices' memory, see peers.h
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, std::size_t count);

// ---------------------------------------------------------------- streams, events
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t s, void (*function)(void*), void* data);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags);
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);
// Refused for events without timing, and before both are done. The time is that of the host, good for nothing
// but > 0.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value);
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*f)(P...), cudaFuncAttribute what, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(f), what, value);
}

namespace simt {
// Remembers the error for cudaGetLastError, and returns it.
cudaError_t noted(cudaError_t e);
// Runs f; a Fault leaves as an exception, or as a status code while another exception is on its way up.
template <class F>
cudaError_t guarded(F f) {
  const int before = std::uncaught_exceptions();
  try {
    return noted(f());
  } catch (...) {
    if (before == 0) throw;
    return noted(cudaErrorLaunchFailure);
  }
}
// The stream itself; a Fault for the null stream.
Stream& real(Stream* s);
inline bool idle(const Stream& s) { return s.queue.empty() && !s.busy; }
}  // namespace simt
