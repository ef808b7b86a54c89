// Owners of streams and device memory for tests, and a launch that waits.
#pragma once
#include <cuda_runtime.h>
#include <simt_launch.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace simt {

class StreamOwner {
 public:
  StreamOwner() { cudaStreamCreateWithFlags(&s_, cudaStreamNonBlocking); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  ~StreamOwner() { cudaStreamDestroy(s_); }
  operator cudaStream_t() const { return s_; }

 private:
  cudaStream_t s_ = nullptr;
};

// n elements of device memory, poisoned until written.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) { cudaMalloc(&data_, (n ? n : 1) * sizeof(T)); }
  explicit DeviceArray(const std::vector<T>& v) : DeviceArray(v.size()) {
    cudaMemcpy(data_, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> v(size_);
    cudaMemcpy(v.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

// One block of `threads`, run to its end. A fault of the kernel is thrown from here.
template <class... P, class... A>
void run_block(void (*kernel)(P...), unsigned threads, std::size_t shared_bytes, A... args) {
  const StreamOwner stream;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  launch(kernel, dim3(1), dim3(threads), shared_bytes, stream, args...);
  cudaStreamSynchronize(stream);
}

}  // namespace simt
