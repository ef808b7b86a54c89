// The subset of the CUDA runtime API that the library calls.
//
// A fault in a kernel surfaces as a simt::Fault exception from the call that made it run
// (cudaStreamSynchronize and friends), not as an error code that a test could overlook.
#pragma once
#include <cstddef>

#include <vector_types.h>
#include "tests/simt/fault.h"
#include "tests/simt/stream.h"

// Last parameter of everything that can be at fault: the caller's line, for the report.
#define SIMT_WHERE ::simt::Where where = ::simt::Where::current()

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorNotReady = 600,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

using cudaStream_t = simt::Stream*;
using cudaEvent_t = simt::Event*;

const char* cudaGetErrorString(cudaError_t e);
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }

cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** p, std::size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t s, SIMT_WHERE);
cudaError_t cudaFreeAsync(void* p, cudaStream_t s, SIMT_WHERE);
template <class T>
cudaError_t cudaMalloc(T** p, std::size_t n) {
  return cudaMalloc(reinterpret_cast<void**>(p), n);
}
template <class T>
cudaError_t cudaMallocAsync(T** p, std::size_t n, cudaStream_t s, SIMT_WHERE) {
  return cudaMallocAsync(reinterpret_cast<void**>(p), n, s, where);
}

// Pinned host memory. Here it is like any other of the host, but for its poison.
inline constexpr unsigned cudaHostAllocPortable = 1;
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* p);

// Waits for no stream: the library's streams are non-blocking, so a plain copy is not a fence.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, SIMT_WHERE);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t s,
                            SIMT_WHERE);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t n, cudaStream_t s, SIMT_WHERE);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags);
inline cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithFlags(s, 0); }
// Priorities are for speed, and the harness draws its own.
inline cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return *lowest = 0, *highest = -5, cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamQuery(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags);
inline cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventQuery(cudaEvent_t e);

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute what, int value);
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*f)(P...), cudaFuncAttribute what, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(f), what, value);
}
