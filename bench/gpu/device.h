// A stream, device memory and what the device is, with owners. All throw DeviceError with the runtime's
// words.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <vector>

namespace ringattn::acceptance {

void check(cudaError_t status, const char* call);

// Returns when the bytes are on the device. A plain cudaMemcpy from pageable memory may return earlier, and
// streams that do not wait for the default one would read what was there before.
void copy_to_device(void* to, const void* from, std::size_t bytes);

class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  cudaStream_t get() const { return stream_; }
  void wait() const;  // until all that is queued is done

 private:
  cudaStream_t stream_ = nullptr;
};

// Device memory; none for 0 bytes. What uses it must be done before it is freed.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes);  // full of 0xFF, which is NaN in every dtype
  explicit DeviceBytes(const std::vector<std::byte>& host);
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes();
  void* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::vector<std::byte> host() const;  // a copy; the streams have to be done

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Whether an error was of the kind after which nothing in this process goes on, such as an illegal address.
bool device_lost();

struct DeviceFacts {
  std::string name;
  int capability = 0;  // 10 major + minor
  int processors = 0;  // multiprocessors
  std::size_t memory = 0;
};
// Of every device; empty where there is none, or no driver. `why` then says what the runtime said.
std::vector<DeviceFacts> devices(std::string& why);

}  // namespace ringattn::acceptance
