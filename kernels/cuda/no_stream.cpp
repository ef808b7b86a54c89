// In place of stream.cpp in a build without CUDA.
#include "kernels/cuda/stream.h"
#include "src/error.h"

namespace ringattn {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError("this build has no CUDA: it was made without nvcc, or with RINGATTN_CUDA=OFF");
}

}  // namespace

int current_cuda_device() { refuse(); }
void check_cuda_memory(const char*, const void*, int) { refuse(); }
void await_cuda_stream(void*, std::chrono::steady_clock::time_point) { refuse(); }

}  // namespace ringattn
