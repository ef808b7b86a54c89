#include "kernels/cuda/stream.h"

#include <cuda_runtime.h>

#include <string>
#include <thread>
#include <type_traits>

#include "kernels/cuda/device_error.h"
#include "kernels/cuda/memory.h"
#include "src/error.h"

namespace ringattn {
namespace {

using namespace cuda;
using Clock = std::chrono::steady_clock;
using EventOwner = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

EventOwner make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return EventOwner(event);
}

bool passed(const EventOwner& event) {
  const cudaError_t status = cudaEventQuery(event.get());
  if (status == cudaErrorNotReady) return false;
  check_cuda(status, "work on the stream");
  return true;
}

// A GPU works for milliseconds, so a host that looks every 50 us loses nothing by it; below that, where a
// short call is waited for, it only lets others run.
void rest(Clock::duration waited) {
  if (waited < std::chrono::milliseconds(2))
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

int current_cuda_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void check_cuda_memory(const char* name, const void* data, int device) {
  cudaPointerAttributes found{};
  // What CUDA has never heard of was an error before CUDA 11, and is memory of the host since.
  check_cuda(cudaPointerGetAttributes(&found, data), "cudaPointerGetAttributes");
  if (found.type == cudaMemoryTypeManaged) return;
  if (found.type != cudaMemoryTypeDevice)
    throw UsageError(std::string(name) + " points to " +
                     (found.type == cudaMemoryTypeHost ? "pinned host memory" : "host memory") +
                     ", its view says cuda: copy it to device " + std::to_string(device) + " first");
  if (found.device != device)
    throw UsageError(std::string(name) + " lies on device " + std::to_string(found.device) +
                     ", this rank computes on device " + std::to_string(device));
}

// By an event, not cudaStreamQuery: other threads of the caller may queue more meanwhile, which is theirs to
// wait for.
void await_cuda_stream(void* stream, Clock::time_point deadline) {
  const EventOwner end = make_event();
  check_cuda(cudaEventRecord(end.get(), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  const auto start = Clock::now();
  while (true) {
    const bool last = Clock::now() >= deadline;
    if (passed(end)) return;
    const auto waited = Clock::now() - start;
    if (last)
      throw DeviceError("timed out after " + std::to_string(std::chrono::duration<double>(waited).count()) +
                        " s waiting for the work on the stream");
    rest(waited);
  }
}

}  // namespace ringattn
