// What the unit kernels share: arrays on the device, a launch that waits, a comparison.
#pragma once
#include <cstring>
#include <string>
#include <vector>

#include "bench/gpu/device.h"
#include "bench/gpu/tensor_map.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"

// Instructions of sm_90a are compiled for that architecture alone. Elsewhere the kernels are empty, and are
// not launched.
#if defined(RINGATTN_SIMT) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RINGATTN_UNITS_SM90 1
#endif

namespace ringattn::acceptance {

// Elements on the device; bytes 0xFF until they are written.
template <class T>
class Array {
 public:
  explicit Array(std::size_t n) : bytes_(n * sizeof(T)) {}
  explicit Array(const std::vector<T>& host) : bytes_(bytes_of(host)) {}
  T* data() const { return static_cast<T*>(bytes_.data()); }
  std::vector<T> host() const {
    const std::vector<std::byte> bytes = bytes_.host();
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  static std::vector<std::byte> bytes_of(const std::vector<T>& host) {
    std::vector<std::byte> bytes(host.size() * sizeof(T));
    std::memcpy(bytes.data(), host.data(), bytes.size());
    return bytes;
  }
  DeviceBytes bytes_;
};

// Runs `blocks` blocks to their end.
template <class... P, class... A>
void run_blocks(void (*kernel)(P...), unsigned blocks, unsigned threads, std::size_t shared_bytes,
                const A&... args) {
  const Stream stream;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "cudaFuncSetAttribute");
  cuda::launch(kernel, dim3(blocks), dim3(threads), shared_bytes, stream.get(), args...);
  check(cudaGetLastError(), "launch");
  stream.wait();
}

// "" or where two arrays differ first.
template <class T>
std::string differing(const char* what, const std::vector<T>& got, const std::vector<T>& want) {
  if (got.size() != want.size())
    return std::string(what) + " has " + std::to_string(got.size()) + " elements, expected " +
           std::to_string(want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(got[i] == want[i]))
      return std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", expected " +
             std::to_string(want[i]);
  return "";
}

// The next place in dynamic shared memory where 128-byte swizzles may begin.
__device__ inline unsigned char* swizzle_aligned_shared() {
  unsigned char* const p = ptx::dynamic_shared();
  return p + (1024 - ptx::shared_address(p) % 1024) % 1024;
}

}  // namespace ringattn::acceptance
