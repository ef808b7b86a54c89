// What the ring asks of the device beside the kernels, without a type of CUDA: whose memory a pointer is, and
// when the work of a stream has ended. In a build without CUDA all of it throws DeviceError.
#pragma once
#include <chrono>

namespace ringattn {

// Index of the device that is current for the calling thread. Throws DeviceError if there is none.
int current_cuda_device();

// Throws UsageError "NAME points to host memory, ..." unless `data` is memory that a kernel on that device
// may use as its own: allocated on it, or managed. Costs about a microsecond and waits for nothing.
void check_cuda_memory(const char* name, const void* data, int device);

// Waits on the host until everything that was queued on the stream before has ended. Throws DeviceError at
// the deadline, and if the device fails.
void await_cuda_stream(void* stream, std::chrono::steady_clock::time_point deadline);

}  // namespace ringattn
